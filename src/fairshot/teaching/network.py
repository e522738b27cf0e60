"""The embedder of a store as one file: its weights and, in the header, how to build it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from fairshot.benchmarks.pictures import Pictures
from fairshot.errors import BadInput, PathUnusable
from fairshot.files import write_atomically
from fairshot.models.embedder import Embedder, Features, ModelSettings
from fairshot.models.flips import FlipViews
from fairshot.progress import SILENT, Reporter
from fairshot.teaching.base_counts import CHECKSUM, HEADER, checksum_of_values
from fairshot.teaching.errors import StoreDamaged
from fairshot.teaching.photos import Preparation, fingerprint, thumbnail

EMBEDDER = "embedder.safetensors"
Header = TypeVar("Header", bound=BaseModel)


class Description(BaseModel):
    """How to build an embedder again, and how it wants its pictures."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: ModelSettings
    channels: Literal[1, 3]
    sr_width: Annotated[int, Field(ge=1)] | None
    flip: bool
    mirror: bool
    corner_crops: Annotated[float, Field(ge=0.25, lt=1)] | None = None  # none in stores of earlier versions
    short_side: int = Field(ge=1)
    drawing_side: Annotated[int, Field(ge=1, le=1024)] | None

    def build(self, most_parameters: int) -> Embedder:
        """Build the embedder for weights that are at hand: none are fetched, and they bound its size."""
        settings = self.model.without_weights()
        with torch.random.fork_rng(devices=[]), _no_larger_than(most_parameters):
            return Embedder(settings, self.channels, self.sr_width)


@dataclass(frozen=True)
class Photo:
    """A photo as a store keeps it: its features and a thumbnail."""

    sha256: bytes
    thumbnail: bytes
    g: Tensor  # (V, d)
    g_tilde: Tensor  # (V, d~)


@dataclass(frozen=True)
class Network:
    """A frozen embedder, and the views of a picture that it embeds."""

    embedder: Embedder
    views: FlipViews = FlipViews()
    drawing_side: int | None = None  # pixels; none: it was trained on photos
    short_side: int = 0  # of the pictures it was trained on; 0: that of its test view

    def __post_init__(self) -> None:
        if not self.short_side:
            settings = self.embedder.settings
            object.__setattr__(self, "short_side", settings.resize or settings.size)
        self.embedder.eval().requires_grad_(False)

    @property
    def preparation(self) -> Preparation:
        """What photos must be turned into."""
        return Preparation(self.embedder.channels, self.short_side, self.drawing_side)

    @property
    def shape(self) -> tuple[int, int]:
        """Views and width of g."""
        return self.views.count, self.embedder.width

    @property
    def shape_tilde(self) -> tuple[int, int] | None:
        """Views and width of g~; none where g~ is g."""
        return None if self.embedder.sr is None else (self.views.count, self.embedder.width_tilde)

    def embed(self, pictures: Pictures, reporter: Reporter = SILENT) -> Features:
        """Embed pictures in batches: fast, but the last bits may depend on the other pictures of a batch."""
        return self.embedder.embed(pictures, self.views, reporter)

    def photos(self, pictures: Pictures) -> list[Photo]:
        """Embed pictures one by one, each once: features do not depend on what else is taught."""
        unique = {fingerprint(picture): index for index, picture in enumerate(pictures)}
        chosen = pictures.take(list(unique.values()))
        embedded = [self.embed(chosen.take([index])) for index in range(len(chosen))]
        return as_photos(chosen, {name: torch.cat([each[name] for each in embedded]) for name in embedded[0]})

    def write(self, path: Path) -> None:
        """Write weights and description."""
        embedder = self.embedder
        description = Description(
            model=embedder.settings.without_weights(),
            channels=embedder.channels,
            sr_width=None if embedder.sr is None else embedder.width_tilde,
            flip=self.views.flip,
            mirror=self.views.mirror,
            corner_crops=self.views.corner_crops,
            short_side=self.short_side,
            drawing_side=self.drawing_side,
        )
        write_tensors(path, embedder.state_dict(), description)

    @classmethod
    def read(cls, path: Path) -> Network:
        """Build the embedder a file describes, and load its weights."""
        tensors, description = read_tensors(path, Description, "the embedder of a store")
        # A stem that is replaced is built twice, but nothing makes a network twice as large as its weights.
        embedder = description.build(2 * sum(tensor.numel() for tensor in tensors.values()))
        try:
            embedder.load_state_dict(tensors)
        except RuntimeError as problem:
            raise PathUnusable(path, f"has weights that do not fit its description ({problem})") from None
        views = FlipViews(description.flip, description.mirror, description.corner_crops)
        return cls(embedder, views, description.drawing_side, description.short_side)


def as_photos(pictures: Pictures, features: Features) -> list[Photo]:
    """Return pictures and their features as photos of a store."""
    both = zip(pictures, features["g"], features["g_tilde"], strict=True)
    return [Photo(fingerprint(picture), thumbnail(picture), g, tilde) for picture, g, tilde in both]


def stacked(photos: Sequence[Photo]) -> Features:
    """Return the features of photos, one after another."""
    return {
        "g": torch.stack([each.g for each in photos]),
        "g_tilde": torch.stack([each.g_tilde for each in photos]),
    }


def write_tensors(path: Path, tensors: dict[str, Tensor], header: BaseModel) -> None:
    """Write tensors and, in the header of the file, a description of them and a checksum of both."""
    plain = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
    description = header.model_dump_json()
    metadata = {HEADER: description, CHECKSUM: checksum_of_tensors(plain, description)}
    write_atomically(path, save(plain, metadata=metadata))


def checksum_of_tensors(tensors: dict[str, Tensor], description: str) -> str:
    """Return a SHA-256 over a description and over the names, types, shapes and values of tensors."""
    values = [
        (
            name,
            str(each.dtype),
            tuple(each.shape),
            each.contiguous().reshape(-1).view(torch.uint8).numpy().data,
        )
        for name, each in tensors.items()
    ]
    return checksum_of_values(values, description)


def read_tensors(path: Path, header: type[Header], what: str) -> tuple[dict[str, Tensor], Header]:
    """Read what `write_tensors` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            description, checksum = metadata[HEADER], metadata[CHECKSUM]
        if checksum_of_tensors(tensors, description) != checksum:
            raise StoreDamaged(path, "its checksum is another")
        return tensors, header.model_validate_json(description)
    except FileNotFoundError:
        raise PathUnusable(path, "is missing: this is not a store, or a part of it was removed") from None
    except OSError as problem:
        raise PathUnusable(path, f"cannot be read: {problem}") from None
    except (SafetensorError, KeyError, ValidationError, UnicodeError) as problem:
        raise StoreDamaged(path, f"it is not {what}: {problem}") from None


@contextmanager
def _no_larger_than(parameters: int) -> Iterator[None]:
    """Stop building a network as soon as it has more parameters, before memory is filled with them."""
    left = parameters

    def count(_: nn.Module, name: str, parameter: nn.Parameter) -> None:
        nonlocal left
        left -= parameter.numel()
        if left < 0:
            raise BadInput("embedder", f"it is described as larger than its weights: {name}")

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()
