"""Settings: typed values of a recipe, refused as a whole when one of them cannot be used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from fairshot.errors import did_you_mean


class Settings(BaseModel):
    """A section of a recipe: no unknown key, no number that is none, nothing changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse yes and no where a number is expected; pydantic would read them as 1 and 0."""
        expected = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and bool not in (expected, *get_args(expected)):
            raise ValueError("yes or no is not expected here")
        return value


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Walk the settings as dotted keys and plain values."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Say which settings of a run and of a recipe differ; nothing if none does."""
    there, here = dict(flat(theirs)), dict(flat(ours))
    return ", ".join(
        f"{key} is {there.get(key)} there and {here.get(key)} here"
        for key in there | here
        if there.get(key) != here.get(key)
    )


def _in_rising_order(values: tuple[float, float]) -> tuple[float, float]:
    if not values[0] <= values[1]:
        raise ValueError("expected two numbers in rising order")
    return values


Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
ShareRange = Annotated[tuple[Share, Share], AfterValidator(_in_rising_order)]
PositiveRange = Annotated[tuple[Positive, Positive], AfterValidator(_in_rising_order)]


def explain(
    problem: ValidationError,
    settings: type[Settings],
    prefix: str = "",
    further: Mapping[str, type[Settings]] = MappingProxyType({}),
) -> str:
    """Return one line for each key of the settings that cannot be used, named with its section.

    `further` are sections whose keys the settings do not know themselves.
    """
    lines = []
    for error in problem.errors():
        key = prefix + ".".join(str(part) for part in error["loc"])
        what = error["msg"].removeprefix("Value error, ")
        if error["type"] == "extra_forbidden":
            what = f"unknown key{_meant(settings, error['loc'], further)}"
        elif error["type"] in ("model_type", "dict_type"):
            what = f"expected a section of keys and values, got {error['input']!r}"
        elif error["type"] != "missing" and not isinstance(error["input"], dict):
            what += f", got {error['input']!r}"
        lines.append(f"{key.rstrip('.')}: {what}")
    return "\n".join(lines)


def _meant(settings: type[Settings], path: Sequence[int | str], further: Mapping[str, type[Settings]]) -> str:
    """Ask for the section in which there is a key of this name, or for the key that is spelt alike."""
    *sections, key = (str(part) for part in path)
    section: Any = settings
    for name in sections:
        section = section.model_fields[name].annotation
    below = {name: field.annotation for name, field in section.model_fields.items()} | dict(further)
    homes = [name for name, one in below.items() if key in getattr(one, "model_fields", ())]
    # the very name in another section is likelier to be meant than one that is spelt alike
    return f"; did you mean {homes[0]}.{key}?" if homes else did_you_mean(key, section.model_fields)
