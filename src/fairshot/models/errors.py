"""What is wrong with a backbone or its weights; which option helps is the command line's to say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairshot.errors import PathUnusable, UserError, did_you_mean, first_of

NAMED = 3  # tensors that a message names


class UnknownBackbone(UserError):
    """A name that no backbone has."""

    def __init__(
        self, name: str, others: Iterable[str], models: Iterable[str], setting: str | None = None
    ) -> None:
        self.name, self.setting = name, setting  # of the recipe, if it comes from one
        others = list(others)
        meant = did_you_mean(name, [*others, *models]) or "; for example resnet18, convnext_tiny"
        place = f"{setting}: " if setting else ""
        super().__init__(f"{place}{name!r} is neither one of {', '.join(others)} nor a model of timm{meant}")


class CannotEmbed(UserError):
    """A network that does not turn pictures of the asked size into one row of features each."""

    def __init__(self, backbone: str, size: int, reason: str) -> None:
        self.backbone, self.size, self.reason = backbone, size, reason
        super().__init__(f"{backbone} cannot embed pictures of {size} x {size} pixels: {reason}")


class PretrainedWeightsMissing(UserError):
    """The pretrained weights of a backbone are neither on this machine nor to be fetched."""

    def __init__(self, backbone: str, reason: str) -> None:
        self.backbone = backbone
        super().__init__(
            f"the pretrained weights of {backbone} could not be loaded ({reason}). Go online once, so that "
            "they are kept, or give them as a file"
        )


class PackagedWeightsMissing(UserError):
    """The package that holds the weights of a preset is not installed."""

    def __init__(self, preset: str, package: str) -> None:
        self.preset, self.package = preset, package
        super().__init__(f"the weights of {preset} are in the package {package}, which is not installed")


class UnusableWeights(PathUnusable):
    """A file of weights that cannot be read."""


class WeightsDoNotFit(UserError):
    """Weights of another network than the one they are for."""

    def __init__(
        self,
        source: str,
        backbone: str,
        missing: Sequence[str],
        other_shapes: Sequence[str],
        unexpected: Sequence[str],
    ) -> None:
        self.source, self.backbone = source, backbone
        self.missing, self.other_shapes, self.unexpected = missing, other_shapes, unexpected
        kinds = {"missing": missing, "of another shape": other_shapes, "unexpected": unexpected}
        listed = [
            f"{len(names)} tensors {kind}: {first_of(names, NAMED)}" for kind, names in kinds.items() if names
        ]
        super().__init__(f"{source} does not fit {backbone}: {'; '.join(listed)}")
