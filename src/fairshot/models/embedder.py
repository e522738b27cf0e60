"""Embedder: from pictures to transferable features g and class-specific discriminative features g~."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor, nn

from fairshot.benchmarks.pictures import Pictures
from fairshot.models.flips import FlipViews, Transform
from fairshot.models.heads import SR
from fairshot.models.pixels import DevicePictures, centre_boxes, crop_resize
from fairshot.models.presets import PRESETS
from fairshot.models.weights import sha256_of
from fairshot.progress import SILENT, Reporter
from fairshot.settings import Positive, Settings

PIXELS_AT_ONCE = {"cpu": 2**20, "cuda": 2**23}  # of a batch that is embedded, which bounds memory
Initialisation = Literal["timm", "torch"]
Stem = Literal["3x3", "3x3/2"]
Features = dict[str, Tensor]  # "g": (N, V, d), "g_tilde": (N, V, d~); V views of each picture


class ModelSettings(Settings):
    """The network and the size of its input."""

    backbone: str = Field("resnet18", description="tiny, resnet12, resnet20, or any model of timm.")
    small_stem: bool = Field(True, description="3x3 stem without max-pooling, for inputs of 32 to 84 pixels.")
    stem: Stem = Field(
        "3x3", description="The small stem: of stride 1, or of stride 2 (3x3/2) at a quarter of the cost."
    )
    pretrained: bool = Field(False, description="Start from timm's weights of the backbone.")
    weights: str | None = Field(
        None, description="Start from the weights of a preset, or of a file of safetensors or torch."
    )
    weights_sha256: str | None = Field(
        None,
        pattern="^[0-9a-f]{64}$",
        description="SHA-256 of these weights, filled in when a recipe is loaded.",
    )
    # timm: the last batch norm of each residual block is zero
    initialisation: Initialisation = Field(
        "timm", description="Whether a backbone without pretrained weights begins as timm or torch draws it."
    )
    size: int = Field(32, ge=8, le=1024, description="Pixels per side of the network's input.")
    resize: int | None = Field(
        None,
        ge=8,
        description="Short side of a test picture before the centre is cut out; null: the whole is used.",
    )
    mean: tuple[float, ...] = Field((0.5, 0.5, 0.5), description="Mean of the pixels, per channel.")
    std: tuple[Positive, ...] = Field(
        (0.25, 0.25, 0.25), description="Standard deviation of the pixels, per channel."
    )

    @field_validator("mean", "std")
    @classmethod
    def _one_or_three(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if len(values) not in (1, 3):
            raise ValueError("expected one number (grey) or three (red, green, blue)")
        return values

    @field_validator("stem")
    @classmethod
    def _is_a_small_one(cls, stem: str, info: ValidationInfo) -> str:
        if stem != "3x3" and not info.data.get("small_stem"):
            raise ValueError("it is a small stem; expected model.small_stem true beside it")
        return stem

    @field_validator("weights")
    @classmethod
    def _of_this_backbone(cls, weights: str | None, info: ValidationInfo) -> str | None:
        if weights is not None and info.data.get("pretrained"):
            raise ValueError("model.pretrained loads others; expected null, or model.pretrained false")
        preset, backbone = PRESETS.get(weights or ""), info.data.get("backbone")
        if preset is not None and preset.backbone != backbone:
            raise ValueError(f"these weights are of {preset.backbone}, and model.backbone is {backbone}")
        return weights

    @field_validator("initialisation")
    @classmethod
    def _overwrites_no_weights(cls, initialisation: str, info: ValidationInfo) -> str:
        for key in ("pretrained", "weights"):
            if initialisation == "torch" and info.data.get(key):
                raise ValueError(f"it would overwrite the weights that model.{key} loads; expected timm")
        return initialisation

    @field_validator("resize")
    @classmethod
    def _centre_fits(cls, resize: int | None, info: ValidationInfo) -> int | None:
        if resize is not None and resize < info.data.get("size", 0):
            raise ValueError(f"expected at least model.size, {info.data['size']}, which is cut out of it")
        return resize

    def pinned(self) -> ModelSettings:
        """Return these settings with the checksum of the weights, which a run records."""
        if self.weights is None or self.weights_sha256 is not None:
            return self
        return self.model_copy(update={"weights_sha256": sha256_of(self.weights)})

    def without_weights(self) -> ModelSettings:
        """Return the settings of the same network whose weights are at hand, trained perhaps."""
        return self.model_copy(update={"pretrained": False, "weights": None, "weights_sha256": None})

    @property
    def centre_share(self) -> float:
        """Side of the test view as a share of the picture's short side."""
        return self.size / self.resize if self.resize else 1.0


class Embedder(nn.Module):
    """A backbone g followed by an SR module; without one g~ is g."""

    mean: Tensor
    std: Tensor
    images_passed: Tensor  # how many images have gone through it in training

    def __init__(self, settings: ModelSettings, channels: int, sr_width: int | None = None) -> None:
        from fairshot.models.backbones import build_backbone, feature_width  # timm takes seconds to import

        super().__init__()
        self.settings = settings
        self.channels = channels
        self.backbone = build_backbone(settings, channels)
        self.width = feature_width(self.backbone, settings, channels)
        self.sr: nn.Module | None = SR(self.width, sr_width) if sr_width else None
        self.width_tilde = sr_width or self.width
        for name, values in (("mean", settings.mean), ("std", settings.std)):
            self.register_buffer(name, torch.tensor(_per_channel(values, channels)).view(1, -1, 1, 1))
        # counted on the device, so that a compiled step counts too and nobody waits for it
        self.register_buffer("images_passed", torch.zeros((), dtype=torch.int64), persistent=False)
        # as in training, so that a loaded network gives the same features to the last bit
        self.to(memory_format=torch.channels_last)

    def stages(self) -> list[nn.Sequential]:
        """Split a residual backbone into its stages, which share its weights."""
        from fairshot.models.backbones import stages

        return stages(self.backbone)

    def follow_with(self, module: nn.Module, width: int) -> None:
        """Replace SR by a module of a method, which has this output width."""
        self.sr, self.width_tilde = module, width

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return g and g~ of images (N, C, H, W) in [0, 1]."""
        g = self.backbone(self.normalised(images))
        return g, g if self.sr is None else self.sr(g)

    def normalised(self, images: Tensor) -> Tensor:
        """Normalise images in [0, 1] by mean and standard deviation; in training they are counted."""
        if self.training:
            self.images_passed += len(images)
        return (images - self.mean) / self.std

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.mean.device

    def embed(
        self, pictures: Pictures, views: FlipViews = FlipViews(), reporter: Reporter = SILENT
    ) -> Features:
        """Embed the views of pictures that classifiers compare."""
        features = self.embed_transformed(pictures, views.transforms, reporter)
        return {name: views.combine(value) for name, value in features.items()}

    @torch.inference_mode()
    def embed_transformed(
        self, pictures: Pictures, transforms: Sequence[Transform], reporter: Reporter = SILENT
    ) -> Features:
        """Embed pictures under the test view, once per transform of it."""
        self.eval()
        batch = max(1, PIXELS_AT_ONCE[self.device.type] // self.settings.size**2)
        widths = {"g": self.width, "g_tilde": self.width_tilde}
        parts = {
            name: [torch.empty(0, len(transforms), width, dtype=torch.float32, device=self.device)]
            for name, width in widths.items()
        }
        with reporter.track("embedding", len(pictures)) as advance:
            for start in range(0, len(pictures), batch):
                chosen = pictures.take(range(start, min(start + batch, len(pictures))))
                images = self.test_view(DevicePictures.from_pictures(chosen, self.device))
                views = [self._features(transform(images)) for transform in transforms]
                for index, name in enumerate(parts):
                    parts[name].append(torch.stack([view[index] for view in views], dim=1))
                advance(len(chosen))
        return {name: torch.cat(part) for name, part in parts.items()}

    def test_view(self, pictures: DevicePictures) -> Tensor:
        """Return the centre of each picture, resized to the network's input size."""
        return central_view(pictures, self.settings)

    def _features(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the float32 features of a batch, computed in bf16 on a GPU and in float32 on a CPU."""
        if images.is_cuda:
            images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16, enabled=images.is_cuda):
            g, g_tilde = self(images)
        return g.float(), g_tilde.float()


def central_view(pictures: DevicePictures, settings: ModelSettings) -> Tensor:
    """Return the centre of each picture, resized to the input size of a network (N, C, size, size)."""
    boxes = centre_boxes(pictures.sizes, settings.centre_share).to(torch.float32)
    return crop_resize(pictures, boxes, settings.size)


def _per_channel(values: tuple[float, ...], channels: int) -> list[float]:
    """Return mean or std per channel; grey pictures get the average of three."""
    if len(values) == channels:
        return list(values)
    return [sum(values) / len(values)] * channels
