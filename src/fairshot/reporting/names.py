"""What reports call a run: its method as its authors write it, and what sets it apart from others of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from fairshot.models.presets import PRESETS

Flat = Mapping[str, Any]  # the settings of a run by dotted keys
MOST_DIFFERENCES = 3  # that a name lists
PARTS = {
    "intra": ("Intra", "the vertical flip is a second component of each class"),
    "inter": ("Inter", "blends of two classes are classes of their own"),
    "sr": ("SR", "a module after the backbone, and with it two kinds of features"),
    "resistance": ("R", "base prototypes move away from similar novel classes"),
    "calibration": ("C", "prototypes move towards unlabelled samples recognised as theirs"),
}
GATE, MIRROR, CROPS, CALIBRATION = "gate", "mirror images", "corner crops", "Calibration"
BEYOND_PAPER = {GATE, MIRROR, CROPS}  # which no row of the paper has
SETTINGS_OF = {  # by what a reader knows it as: settings that say nothing where it is off
    GATE: ("gate", "gate_strength", "whitening", "power", "shrinkage", "class_covariance_share"),
    MIRROR: ("mirror",),
    CROPS: ("corner_crops",),
    CALIBRATION: (
        *("calibration", "calibration_timing", "threshold", "at_most", "recognised_by"),
        *("alpha_base", "alpha_novel", "bounded", "drift"),
    ),
}
WEIGHTS, CHECKSUM = "model.weights", "model.weights_sha256"
LOW_RESOLUTION, LOW_SHARE = "training.low_resolution", "training.low_resolution_share"
CHECKSUM_SHOWN = 8  # digits of it
IN_WORDS = {"method.calibration_timing": "{} the answers"}  # of values that say more than key and value
OWNER = {f"method.{key}": phrase for phrase, keys in SETTINGS_OF.items() for key in keys}
PART_KEYS = {f"method.{part}" for part in PARTS if part != "calibration"}  # which has a name of its own


def variant_name(title: str, mine: Flat, alike: Sequence[Flat]) -> str:
    """Name a run by the title of its method, what it has, and where it differs from `alike`, those of it."""
    brought = _brought_by_weights(mine)
    differing = without_checksum(
        key
        for key in mine
        if key not in brought and any(other.get(key) != mine[key] for other in _peers(key, mine, alike))
    )
    title, _, own = title.partition(" with ")  # SSS with mixtures
    having = [own] * bool(own) + _having(mine)
    parts = [key for key in differing if key in PART_KEYS]
    if parts:
        on = [name for part, (name, _) in PARTS.items() if mine.get(f"method.{part}")]
        having = [phrase for phrase in having if phrase != CALIBRATION]  # it is the part C
        title += f": {' + '.join(on) or 'baseline'}" + "," * bool(having)
    if having:
        title += f" with {' and '.join(filter(None, (', '.join(having[:-1]), having[-1])))}"
    told = without_idle({key: mine[key] for key in differing if key not in parts}, mine)
    others = [setting_text(key, value) for key, value in told.items() if value is not None]
    if len(others) > MOST_DIFFERENCES:
        others = [*others[: MOST_DIFFERENCES - 1], "..."]
    return f"{title} ({', '.join(others)})" if others else title


def setting_text(key: str, value: Any, alone: bool = False) -> str:
    """Return a setting in words: `small stem on`, `decision anomaly detection`, `after the answers`.

    Alone, where nothing before it says what is after the answers, it says that too.
    """
    if key in IN_WORDS:
        return f"{OWNER[key]} " * alone + IN_WORDS[key].format(value)
    text = {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
    if key == WEIGHTS:
        text = PurePath(text).name
    elif key == CHECKSUM:
        text = text[:CHECKSUM_SHOWN]
    return f"{key_text(key)} {text.replace('_', ' ') if text.isidentifier() else text}"


def key_text(key: str) -> str:
    """Return the dotted key of a setting in words."""
    return key.rpartition(".")[2].replace("_", " ")


def without_checksum(keys: Iterable[str]) -> list[str]:
    """Leave out the checksum of weights among settings that differ where their name does too."""
    found = list(keys)
    return [key for key in found if key != CHECKSUM or WEIGHTS not in found]


def is_as_published(settings: Flat) -> bool:
    """Whether a run has nothing that the paper's have not."""
    return not beyond_paper(settings)


def beyond_paper(settings: Flat) -> list[str]:
    """Return what a run has and the paper's have not, in words."""
    return [phrase for phrase in _having(settings) if phrase in BEYOND_PAPER]


def without_idle(some: Flat, settings: Flat) -> dict[str, Any]:
    """Leave out those of some settings that say nothing of a run, which has all `settings`.

    They are those of Calibration, and the share of epochs with a low resolution, where it has neither.
    """
    idle = set() if _has(CALIBRATION, settings) else {key for key, own in OWNER.items() if own == CALIBRATION}
    if not settings.get(LOW_RESOLUTION):
        idle.add(LOW_SHARE)
    return {key: value for key, value in some.items() if key not in idle}


def _having(settings: Flat) -> list[str]:
    return [phrase for phrase in SETTINGS_OF if _has(phrase, settings)]


def _has(phrase: str, settings: Flat) -> bool:
    if phrase == GATE:
        return settings.get("method.gate", "plain") != "plain" or bool(settings.get("method.whitening"))
    return bool(settings.get(f"method.{SETTINGS_OF[phrase][0]}"))


def _peers(key: str, mine: Flat, alike: Sequence[Flat]) -> list[Flat]:
    """Return the runs from which a setting can tell this one.

    A gate is chosen together with the other settings of its method: all of it is "with gate".
    """
    if key in OWNER:  # runs that have other things are told apart by the names of these
        return [other for other in alike if OWNER[key] in _having(mine) == _having(other)]
    if key.startswith("method."):
        return [other for other in alike if _has(GATE, other) == _has(GATE, mine)]
    return list(alike)


def _brought_by_weights(settings: Flat) -> set[str]:
    """Return the settings that the weights of a preset bring with them; their name says it all."""
    preset = PRESETS.get(str(settings.get(WEIGHTS)))
    if preset is None:
        return set()
    section = {f"model.{key}": value for key, value in preset.section().items() if key != "weights"}
    # lists in a result, tuples in the preset
    same = {key for key, value in section.items() if json.dumps(settings.get(key)) == json.dumps(value)}
    return {*same, CHECKSUM}
