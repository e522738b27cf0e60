"""Settings: the typed sections of a recipe, and messages about values that cannot be used."""

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
    """A section of a recipe. It refuses unknown keys, infinite numbers and NaN, and cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_bool_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false where a number is expected; pydantic would read them as 1 and 0."""
        expected = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and bool not in (expected, *get_args(expected)):
            raise ValueError("true or false is not expected here")
        return value


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and their values: ("training.epochs", 60)."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Say which settings of a run (there) and of a recipe (here) differ; empty if none does."""
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
) -> dict[str, str]:
    """Return what is wrong with each key of the settings that cannot be used, named with its section.

    `further` are the settings of sections whose keys `settings` does not define, by their names.
    """
    reasons = {}
    for error in problem.errors():
        key = prefix + ".".join(str(part) for part in error["loc"])
        what = error["msg"].removeprefix("Value error, ")
        if error["type"] == "extra_forbidden":
            what = f"unknown key{_meant(settings, error['loc'], further)}"
        elif error["type"] in ("model_type", "dict_type"):
            what = f"expected a section of keys and values, got {error['input']!r}"
        elif error["type"] != "missing" and not isinstance(error["input"], dict):
            what += f", got {error['input']!r}"
        reasons[key.rstrip(".")] = what
    return reasons


def _meant(settings: type[Settings], path: Sequence[int | str], further: Mapping[str, type[Settings]]) -> str:
    """Ask whether the same key of another section was meant, or a key that is spelt alike."""
    *sections, key = (str(part) for part in path)
    section: Any = settings
    for name in sections:
        section = section.model_fields[name].annotation
    below = {name: field.annotation for name, field in section.model_fields.items()} | dict(further)
    having = [name for name, one in below.items() if key in getattr(one, "model_fields", ())]
    # The same key in another section is more likely than a misspelt one.
    return f"; did you mean {having[0]}.{key}?" if having else did_you_mean(key, section.model_fields)
