"""The embedder of a store as one file: its weights and, in the header, how to build it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from fairshot.benchmarks.pictures import Pictures
from fairshot.errors import UserError
from fairshot.files import write_atomically
from fairshot.models.embedder import Embedder, Features, ModelSettings
from fairshot.models.pixels import DevicePictures
from fairshot.progress import SILENT, Reporter
from fairshot.teaching.photos import Preparation, fingerprint, thumbnail

FILE_NAME = "embedder.safetensors"
BATCH = 32


class Description(BaseModel):
    """How to build an embedder again, and how it wants its pictures."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: ModelSettings
    channels: Literal[1, 3]
    sr_width: Annotated[int, Field(ge=1)] | None
    flips: Annotated[tuple[bool, ...], Field(min_length=1, max_length=2)]  # views; True: vertically flipped
    mirror: bool = False
    short_side: int = Field(ge=1)
    drawing_side: Annotated[int, Field(ge=1, le=1024)] | None

    def build(self, most_parameters: int) -> Embedder:
        """Build the embedder for weights that are at hand: none are fetched, and they bound its size."""
        settings = self.model.model_copy(update={"pretrained": False})
        with torch.random.fork_rng(devices=[]), _no_larger_than(most_parameters):
            return Embedder(settings, self.channels, self.sr_width)


@dataclass(frozen=True)
class Photo:
    """A photo as a store keeps it: small, and by its features."""

    sha256: bytes
    thumbnail: bytes
    g: Tensor  # (V, d)
    g_tilde: Tensor  # (V, d~)


@dataclass(frozen=True)
class Network:
    """An embedder at work: frozen, and always looking at the same views."""

    embedder: Embedder
    flips: tuple[bool, ...] = (False,)
    drawing_side: int | None = None  # pixels; none: it looks at photos
    short_side: int = 0  # of the pictures it was trained on; 0: as its test view wants them
    mirror: bool = False  # whether features are averaged with those of mirror images

    def __post_init__(self) -> None:
        if not self.short_side:
            settings = self.embedder.settings
            object.__setattr__(self, "short_side", settings.resize or settings.size)
        self.embedder.eval().requires_grad_(False).to(memory_format=torch.channels_last)

    @property
    def preparation(self) -> Preparation:
        """What photos must be turned into."""
        return Preparation(self.embedder.channels, self.short_side, self.drawing_side)

    @property
    def shape(self) -> tuple[int, int]:
        """Views and width of g."""
        return len(self.flips), self.embedder.width

    @property
    def shape_tilde(self) -> tuple[int, int] | None:
        """Views and width of g~; none where g~ is g."""
        return None if self.embedder.sr is None else (len(self.flips), self.embedder.width_tilde)

    def embed(self, pictures: Pictures) -> Features:
        """Embed pictures one by one, so that the features of a picture do not depend on its company."""
        return self._embed_by(1, pictures, SILENT)

    def embed_photos(self, pictures: Pictures) -> list[Photo]:
        """Embed prepared pictures; each picture once, however often it was given."""
        unique = {fingerprint(picture): index for index, picture in enumerate(pictures)}
        chosen = pictures.take(list(unique.values()))
        features = self.embed(chosen)
        return [
            Photo(sha256, thumbnail(picture), g, g_tilde)
            for sha256, picture, g, g_tilde in zip(
                unique, chosen, features["g"], features["g_tilde"], strict=True
            )
        ]

    def embed_together(self, pictures: Pictures, reporter: Reporter = SILENT) -> Features:
        """Embed pictures in batches: faster, and the last bits may depend on the company."""
        return self._embed_by(BATCH, pictures, reporter)

    def _embed_by(self, batch: int, pictures: Pictures, reporter: Reporter) -> Features:
        every, parts = np.arange(len(pictures)), []
        with reporter.track("embedding", len(pictures)) as advance:
            for start in every[::batch]:
                some = pictures.take(every[start : start + batch])
                parts.append(self._embed(some))
                advance(len(some))
        return {name: torch.cat([part[name] for part in parts]) for name in ("g", "g_tilde")}

    @torch.inference_mode()
    def _embed(self, pictures: Pictures) -> Features:
        """Embed all views of some pictures in one pass, in the layout that is fastest on a CPU."""
        images = self.embedder.test_view(DevicePictures.from_pictures(pictures))
        views = self.views(images)
        both = self.embedder(torch.cat(views).contiguous(memory_format=torch.channels_last))
        g, g_tilde = (self.joined(list(features.chunk(len(views)))) for features in both)
        return {"g": g, "g_tilde": g_tilde}

    def views(self, images: Tensor) -> list[Tensor]:
        """Return each view of images (N, C, H, W), and after them their mirror images if these are used."""
        upright = [images.flip(2) if flip else images for flip in self.flips]
        return upright + [view.flip(3) for view in upright] if self.mirror else upright

    def joined(self, features: list[Tensor]) -> Tensor:
        """Put the features of the views (N, d) together (N, V, d), averaged with those of mirror images."""
        together = torch.stack(features, dim=1)
        if not self.mirror:
            return together
        upright, mirrored = together.chunk(2, dim=1)
        return (upright + mirrored) / 2

    def write(self, path: Path) -> None:
        """Write weights and description."""
        embedder = self.embedder
        description = Description(
            model=embedder.settings.model_copy(update={"pretrained": False}),
            channels=embedder.channels,
            sr_width=None if embedder.sr is None else embedder.width_tilde,
            flips=self.flips,
            mirror=self.mirror,
            short_side=self.short_side,
            drawing_side=self.drawing_side,
        )
        tensors = {name: value.contiguous().cpu() for name, value in embedder.state_dict().items()}
        write_atomically(path, save(tensors, metadata={"fairshot": description.model_dump_json()}))

    @classmethod
    def read(cls, path: Path) -> Network:
        """Build the embedder a file describes, and load its weights."""
        try:
            with safe_open(path, framework="pt") as file:
                description = Description.model_validate_json((file.metadata() or {})["fairshot"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except FileNotFoundError:
            raise UserError(f"{path} is missing: this is not a store, or a part of it was removed") from None
        except (SafetensorError, KeyError, ValidationError) as problem:
            raise UserError(f"{path} is not the embedder of a store ({problem})") from None
        # A stem that is replaced is built twice, but nothing makes a network twice as large as its weights.
        embedder = description.build(2 * sum(tensor.numel() for tensor in tensors.values()))
        try:
            embedder.load_state_dict(tensors)
        except RuntimeError as problem:
            raise UserError(f"{path}: its weights do not fit its description ({problem})") from None
        return cls(
            embedder, description.flips, description.drawing_side, description.short_side, description.mirror
        )


@contextmanager
def _no_larger_than(parameters: int) -> Iterator[None]:
    """Stop building a network as soon as it has more parameters, before memory is filled with them."""
    left = parameters

    def count(_: nn.Module, name: str, parameter: nn.Parameter) -> None:
        nonlocal left
        left -= parameter.numel()
        if left < 0:
            raise UserError(f"the embedder of the store is described as larger than its weights: {name}")

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()
