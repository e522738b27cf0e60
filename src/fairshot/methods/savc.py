"""SAVC: base classes under fixed transforms are virtual classes, classified and contrasted."""

from __future__ import annotations

import copy
from functools import partial
from typing import Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from fairshot.benchmarks.pictures import Pictures
from fairshot.errors import BadSetting
from fairshot.methods.method import MethodCard, MethodSettings
from fairshot.methods.prototype_method import PrototypeMethod
from fairshot.models.embedder import Embedder, Features, ModelSettings
from fairshot.models.flips import Transform
from fairshot.models.heads import CosineHead, cosine_cross_entropy
from fairshot.progress import SILENT, Reporter
from fairshot.settings import PositiveRange
from fairshot.training.hardware import from_all_processes
from fairshot.training.loop import Objective
from fairshot.training.views import ViewSettings

EMPTY = -1  # label of a place of the queue without a key


class SAVCSettings(MethodSettings):
    """The fantasy, and the contrast beside the classifier."""

    fantasy: Literal["half_turn", "turns_and_colours"] = Field(
        "half_turn", description="Transforms that make virtual classes: 2, or 12 (colour images only)."
    )
    scale: float = Field(16.0, gt=0, description="Factor of the cosines in the cross-entropy.")
    global_weight: float = Field(0.2, ge=0, description="Weight of the contrast of large crops.")
    local_weight: float = Field(0.8, ge=0, description="Weight of the contrast of small crops.")
    temperature: float = Field(0.07, gt=0, description="Temperature of the contrast.")
    queue: int = Field(8192, ge=1, description="Keys of earlier images in the queue.")
    momentum: float = Field(0.995, ge=0, lt=1, description="Momentum of the network that makes keys.")
    projection: int = Field(32, ge=1, description="Width of what is contrasted.")
    large_area: PositiveRange = Field((0.9, 1.0), description="Share of the picture that a large crop shows.")
    small_area: PositiveRange = Field((0.2, 0.7), description="Share of the picture that a small crop shows.")
    small_crops: int = Field(4, ge=1, description="Small crops per image.")
    small_size: float = Field(
        0.5625, gt=0, le=1, description="Pixels per side of a small crop, as a share of those of other views."
    )


def fantasy_transforms(kind: str) -> list[Transform]:
    """Return the m fixed transforms: rotations by 180 degrees, or by 90 degrees with permuted colours."""
    quarters, shifts = ((0, 2), (0,)) if kind == "half_turn" else (range(4), range(3))
    return [partial(_transformed, quarters=k, shift=shift) for k in quarters for shift in shifts]


def _transformed(images: Tensor, quarters: int, shift: int) -> Tensor:
    return images.roll(shift, 1).rot90(quarters, (2, 3))


class FantasyContrast(Objective):
    """Classifies and contrasts virtual classes: pairs of a class and a transform.

    The first view is classified. The second is a large crop for the global contrast, the third the large
    crop that makes the key, and the others are small crops for the local contrast.
    """

    queue: Tensor  # (K, p) keys
    queue_labels: Tensor  # (K,) the virtual class of each key, or EMPTY
    pointer: Tensor  # where in the queue the next key goes
    new_keys: tuple[Tensor, Tensor]  # keys of the last step and their labels

    def __init__(self, embedder: Embedder, classes: int, settings: SAVCSettings) -> None:
        super().__init__()
        self.embedder, self.settings = embedder, settings
        self.views = 3 + settings.small_crops
        self.transforms = fantasy_transforms(settings.fantasy)
        self.head = CosineHead(classes * len(self.transforms), embedder.width)
        hidden = nn.Linear(embedder.width, embedder.width)
        self.projector = nn.Sequential(hidden, nn.ReLU(), nn.Linear(embedder.width, settings.projection))
        self.key_embedder = copy.deepcopy(embedder).requires_grad_(False)
        self.key_projector = copy.deepcopy(self.projector).requires_grad_(False)
        self.register_buffer("queue", normalize(torch.randn(settings.queue, settings.projection), dim=1))
        self.register_buffer("queue_labels", torch.full((settings.queue,), EMPTY))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.int64))

    def view_settings(self, index: int, settings: ViewSettings) -> ViewSettings:
        """Draw the classified view as the recipe says; the others are large or small crops."""
        if index == 0:
            return settings
        area = self.settings.large_area if index < 3 else self.settings.small_area
        # padded views show the whole picture, whatever the area
        rule = "torchvision" if settings.crop_rule == "padded" else settings.crop_rule
        return settings.model_copy(update={"crop_area": area, "crop_rule": rule})

    def view_size(self, index: int, size: int) -> int:
        """Return fewer pixels for small crops."""
        return size if index < 3 else max(8, round(self.settings.small_size * size))

    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return the cross-entropy plus the weighted contrastive losses."""
        del noise
        chosen, labels = self.settings, self.virtual_labels(labels)
        classified, large, key, *small = views
        # Images of one size go through the network together.
        g_classified, g_large = self.features(classified, large).chunk(2)
        g_small = self.features(*small)
        loss = cosine_cross_entropy(self.head(g_classified), labels, chosen.scale).mean()
        keys = self.keys(key)
        for weight, g in ((chosen.global_weight, g_large), (chosen.local_weight, g_small)):
            queries, times = normalize(self.projector(g), dim=1), len(g) // len(labels)
            loss = loss + weight * self.contrast(queries, labels.repeat(times), keys.repeat(times, 1))
        self.new_keys = keys, labels  # queued after the step: the backward pass still needs the old queue
        return loss

    def features(self, *views: Tensor) -> Tensor:
        """Return the features of views of one size, one view after the other, under each transform."""
        g: Tensor = self.embedder(torch.cat([self.fantasise(view) for view in views]))[0]
        return g

    def fantasise(self, images: Tensor) -> Tensor:
        """Return the images under each transform, one transform after the other."""
        return torch.cat([transform(images) for transform in self.transforms])

    def virtual_labels(self, labels: Tensor) -> Tensor:
        """Return the virtual class y * m + k of each image under transform k, in the order of `fantasise`."""
        m = len(self.transforms)
        return torch.cat([m * labels + k for k in range(m)])

    @torch.no_grad()
    def keys(self, images: Tensor) -> Tensor:
        """Return the keys of images, by the momentum network."""
        return normalize(self.key_projector(self.key_embedder(self.fantasise(images))[0]), dim=1)

    def contrast(self, queries: Tensor, labels: Tensor, keys: Tensor) -> Tensor:
        """Supervised contrastive loss; positives are the own key and keys of the same class in the queue."""
        own = (queries * keys).sum(1, keepdim=True)
        logits = torch.cat([own, queries @ self.queue.T], dim=1).float() / self.settings.temperature
        same = labels[:, None] == self.queue_labels
        positive = torch.cat([torch.ones_like(labels[:, None]), same], dim=1)
        return -((positive * logits.log_softmax(1)).sum(1) / positive.sum(1)).mean()

    @torch.no_grad()
    def enqueue(self, keys: Tensor, labels: Tensor) -> None:
        """Overwrite the oldest keys of the queue; of more keys than the queue holds, the last are kept."""
        length = len(self.queue)
        keys, labels = from_all_processes(keys)[-length:], from_all_processes(labels)[-length:]
        places = (self.pointer + torch.arange(len(keys), device=keys.device)) % length
        self.queue.index_copy_(0, places, keys.to(self.queue.dtype))
        self.queue_labels.index_copy_(0, places, labels)
        self.pointer.copy_((self.pointer + len(keys)) % length)

    @torch.no_grad()
    def after_step(self) -> None:
        """Put the keys into the queue, and update the momentum network."""
        self.enqueue(*self.new_keys)
        del self.new_keys
        for slow, fast in ((self.key_embedder, self.embedder), (self.key_projector, self.projector)):
            torch._foreach_lerp_(list(slow.parameters()), list(fast.parameters()), 1 - self.settings.momentum)


class SAVC(PrototypeMethod[SAVCSettings]):
    """Semantic-aware virtual contrast.

    Each base class under each of m fixed transforms is a virtual class: a cosine classifier tells them apart,
    and a momentum contrast pulls images of the same one together. Every class has one prototype per
    transform; a prediction averages the cosines of the m transforms of the test image.
    """

    name = "savc"
    Settings = SAVCSettings
    card = MethodCard(
        "transformed base classes as virtual classes, classified and contrasted; averages their answers",
        stores="mean feature per transform",
        title="SAVC",
        paper="Song et al., CVPR",
        year=2023,
        grid={"method.scale": (8.0, 12.0, 16.0, 20.0, 24.0, 32.0)},
    )

    @classmethod
    def passes(cls, settings: MethodSettings) -> int:
        return len(fantasy_transforms(cast(SAVCSettings, settings).fantasy))

    def build_embedder(self, model: ModelSettings, channels: int) -> Embedder:
        """Build the network, unless the transforms need colours that the pictures do not have."""
        if self.settings.fantasy == "turns_and_colours" and channels != 3:
            raise BadSetting(
                "method.fantasy",
                self.settings.fantasy,
                "it permutes red, green and blue, but these pictures are grey; use half_turn",
            )
        return super().build_embedder(model, channels)

    def objective(self) -> FantasyContrast:
        return FantasyContrast(self.embedder, self.base_classes, self.settings)

    def embed(self, pictures: Pictures, reporter: Reporter = SILENT) -> Features:
        """Return the features of each picture under each transform, with mirror images if asked."""
        transforms = self.views.of_each_appearance(fantasy_transforms(self.settings.fantasy))
        features = self.embedder.embed_transformed(pictures, transforms, reporter=reporter)
        return {name: self.views.combine(value) for name, value in features.items()}
