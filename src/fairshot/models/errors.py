"""What is wrong with a backbone or its weights; which option helps is the command line's to say."""

from __future__ import annotations

from collections.abc import Sequence

from fairshot.errors import PathUnusable, UserError, did_you_mean, first_of

NAMED = 3  # tensors that a message names


class UnknownBackbone(UserError):
    """A name that no backbone has."""

    name: str
    others: Sequence[str]
    models: Sequence[str]
    setting: str | None = None  # of the recipe, if it comes from one

    def __str__(self) -> str:
        meant = did_you_mean(self.name, [*self.others, *self.models])
        meant = meant or "; for example resnet18, convnext_tiny"
        place = f"{self.setting}: " if self.setting else ""
        others = ", ".join(self.others)
        return f"{place}{self.name!r} is neither one of {others} nor a model of timm{meant}"


class CannotEmbed(UserError):
    """A network that does not turn pictures of the asked size into one row of features each."""

    backbone: str
    size: int
    reason: str
    message = "{backbone} cannot embed pictures of {size} x {size} pixels: {reason}"


class PretrainedWeightsMissing(UserError):
    """The pretrained weights of a backbone are neither on this machine nor to be fetched."""

    backbone: str
    reason: str
    message = (
        "the pretrained weights of {backbone} could not be loaded ({reason}). Go online once, so that they "
        "are kept, or give them as a file"
    )


class UnusableWeights(PathUnusable):
    """A file of weights that cannot be read."""


class WeightsDoNotFit(UserError):
    """Weights of another network than the one they are for."""

    source: str
    backbone: str
    missing: Sequence[str]
    other_shapes: Sequence[str]
    unexpected: Sequence[str]

    def __str__(self) -> str:
        kinds = {
            "missing": self.missing,
            "of another shape": self.other_shapes,
            "unexpected": self.unexpected,
        }
        listed = [
            f"{len(names)} tensors {kind}: {first_of(names, NAMED)}" for kind, names in kinds.items() if names
        ]
        return f"{self.source} does not fit {self.backbone}: {'; '.join(listed)}"
