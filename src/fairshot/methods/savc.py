"""SAVC: transformed images are classes of a fantasy, told apart by a classifier and by contrast."""

from __future__ import annotations

import copy
from typing import Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from fairshot.benchmarks.pictures import Pictures
from fairshot.errors import UserError
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

NOBODY = -1  # in place of a class: nothing has been put here yet


class SAVCSettings(MethodSettings):
    """The fantasy, and the contrast beside the classifier."""

    fantasy: Literal["half_turn", "turns_and_colours"] = "half_turn"  # m = 2, or m = 12 (colour images only)
    scale: float = Field(16.0, gt=0)
    global_weight: float = Field(0.2, ge=0)  # of the contrast of large crops
    local_weight: float = Field(0.8, ge=0)  # of the contrast of small crops
    temperature: float = Field(0.07, gt=0)
    queue: int = Field(8192, ge=1)  # keys of earlier images
    momentum: float = Field(0.995, ge=0, lt=1)  # of the network that makes keys
    projection: int = Field(32, ge=1)  # width of what is contrasted
    large_area: PositiveRange = (0.9, 1.0)  # share of the picture
    small_area: PositiveRange = (0.2, 0.7)
    small_crops: int = Field(4, ge=1)
    small_size: float = Field(0.5625, gt=0, le=1)  # pixels a side, as a share of those of other views


def fantasies(kind: str) -> list[Transform]:
    """Return the m fixed transforms of images (N, C, H, W)."""
    if kind == "half_turn":
        return [_turned(0), _turned(2)]
    return [_recoloured(shift, turns) for turns in range(4) for shift in range(3)]


def _turned(quarters: int) -> Transform:
    return lambda images: images.rot90(quarters, (2, 3)) if quarters else images


def _recoloured(shift: int, quarters: int) -> Transform:
    return lambda images: _turned(quarters)(images.roll(shift, 1))


class Projector(nn.Sequential):
    """What contrast sees of the features."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__(nn.Linear(inputs, inputs), nn.ReLU(), nn.Linear(inputs, width))


class FantasyContrast(Objective):
    """Recognise and contrast (class, transform) pairs.

    The first view is classified. Of the others the first is a large crop whose contrast is global, the
    second the large crop that makes the key, and the rest are small crops whose contrast is local.
    """

    queue: Tensor  # (K, p)
    queue_rows: Tensor  # (K,), the fantasy class of each key, or NOBODY
    place: Tensor  # where the next key goes
    fresh: tuple[Tensor, Tensor]  # keys of the last step and their fantasy classes

    def __init__(self, embedder: Embedder, classes: int, settings: SAVCSettings) -> None:
        super().__init__()
        self.embedder, self.settings = embedder, settings
        self.views = 3 + settings.small_crops
        self.transforms = fantasies(settings.fantasy)
        self.head = CosineHead(classes * len(self.transforms), embedder.width)
        self.projector = Projector(embedder.width, settings.projection)
        self.key_embedder = copy.deepcopy(embedder).requires_grad_(False)
        self.key_projector = copy.deepcopy(self.projector).requires_grad_(False)
        self.register_buffer("queue", normalize(torch.randn(settings.queue, settings.projection), dim=1))
        self.register_buffer("queue_rows", torch.full((settings.queue,), NOBODY))
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))

    def view_settings(self, index: int, settings: ViewSettings) -> ViewSettings:
        """The classified view is as the recipe has it; others are large or small crops."""
        if index == 0:
            return settings
        area = self.settings.large_area if index < 3 else self.settings.small_area
        return settings.model_copy(update={"crop_area": area})

    def view_size(self, index: int, size: int) -> int:
        """Small crops have fewer pixels."""
        return size if index < 3 else max(8, round(self.settings.small_size * size))

    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return cross-entropy plus the weighted contrasts."""
        del noise
        chosen, rows = self.settings, self.fantasy_rows(labels)
        classified, large, key, *small = views
        # Images of one size go through the network together.
        g_classified, g_large = self.features(classified, large).chunk(2)
        g_small = self.features(*small)
        recognition = cosine_cross_entropy(self.head(g_classified), rows, chosen.scale).mean()
        keys = self.keys(key)
        contrasts = [
            self.contrast(self.projected(g), rows.repeat(times), keys.repeat(times, 1))
            for g, times in ((g_large, 1), (g_small, len(small)))
        ]
        self.fresh = keys, rows  # for after the step: the backward pass still needs the queue as it is
        return recognition + chosen.global_weight * contrasts[0] + chosen.local_weight * contrasts[1]

    def features(self, *views: Tensor) -> Tensor:
        """Return the features of views of one size, one view after the other, each fantasised."""
        g: Tensor = self.embedder(torch.cat([self.fantasise(view) for view in views]))[0]
        return g

    def fantasise(self, images: Tensor) -> Tensor:
        """Return the images under each transform, one transform after the other."""
        return torch.cat([transform(images) for transform in self.transforms])

    def fantasy_rows(self, labels: Tensor) -> Tensor:
        """Return the class y * m + k of each image under transform k, in the order of `fantasise`."""
        m = len(self.transforms)
        return torch.cat([m * labels + k for k in range(m)])

    def projected(self, g: Tensor) -> Tensor:
        """Return what is contrasted of features, of length 1."""
        return normalize(self.projector(g), dim=1)

    @torch.no_grad()
    def keys(self, images: Tensor) -> Tensor:
        """Return the same by the slowly moving network."""
        return normalize(self.key_projector(self.key_embedder(self.fantasise(images))[0]), dim=1)

    def contrast(self, queries: Tensor, rows: Tensor, keys: Tensor) -> Tensor:
        """Supervised contrast: a query should resemble its own key and those of its class in the queue."""
        own = (queries * keys).sum(1, keepdim=True)
        logits = torch.cat([own, queries @ self.queue.T], dim=1).float() / self.settings.temperature
        positive = torch.cat([torch.ones_like(rows[:, None]), rows[:, None] == self.queue_rows], dim=1)
        likelihood = logits.log_softmax(1)
        return -((positive * likelihood).sum(1) / positive.sum(1)).mean()

    @torch.no_grad()
    def enqueue(self, keys: Tensor, rows: Tensor) -> None:
        """Let the keys take the places of the oldest; of too many, the last."""
        length = len(self.queue)
        keys, rows = from_all_processes(keys)[-length:], from_all_processes(rows)[-length:]
        places = (self.place + torch.arange(len(keys), device=keys.device)) % length
        self.queue.index_copy_(0, places, keys.to(self.queue.dtype))
        self.queue_rows.index_copy_(0, places, rows)
        self.place.copy_((self.place + len(keys)) % length)

    @torch.no_grad()
    def after_step(self) -> None:
        """Put the keys into the queue, and let the network that makes them follow."""
        self.enqueue(*self.fresh)
        del self.fresh
        for slow, fast in ((self.key_embedder, self.embedder), (self.key_projector, self.projector)):
            torch._foreach_lerp_(list(slow.parameters()), list(fast.parameters()), 1 - self.settings.momentum)


class SAVC(PrototypeMethod[SAVCSettings]):
    """Semantic-aware virtual contrast.

    Each base class under each of m fixed transforms is a class of its own: a cosine classifier tells them
    apart, and a momentum contrast draws images of the same one together. Every class has one prototype a
    transform; an answer averages the cosines of the m transforms of the test image.
    Needs to know in advance: nothing. Stores: m mean features a class. Costs at test time: m passes, 2 for
    half turns and 12 for turns and colours.
    """

    name = "savc"
    Settings = SAVCSettings
    card = MethodCard(
        "transformed base classes as virtual classes, classified and contrasted; averages their answers",
        stores="one mean feature a class and transform",
    )

    @classmethod
    def passes(cls, settings: MethodSettings) -> int:
        """One pass a transform."""
        return len(fantasies(cast(SAVCSettings, settings).fantasy))

    def build_embedder(self, model: ModelSettings, channels: int) -> Embedder:
        """Build the network, unless the fantasy needs colours that the pictures do not have."""
        if self.settings.fantasy == "turns_and_colours" and channels != 3:
            raise UserError(
                "method.fantasy: turns_and_colours permutes red, green and blue, but these pictures are "
                "grey; use half_turn"
            )
        return super().build_embedder(model, channels)

    def objective(self) -> FantasyContrast:
        """Return recognition and contrast in the fantasy space."""
        return FantasyContrast(self.embedder, self.base_classes, self.settings)

    def embed(self, pictures: Pictures, reporter: Reporter = SILENT) -> Features:
        """Return the features of each picture under each transform."""
        transforms = fantasies(self.settings.fantasy)
        return self.embedder.embed_transformed(pictures, transforms, reporter=reporter)
