"""An estimator in a folder: its tensors in one file, and beside it a JSON file that names them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from safetensors.torch import load, save

from fairshot.documents import load_json, write_json
from fairshot.errors import BadInput, DamagedFile, PathUnusable, UserError
from fairshot.files import remove_partial, write_atomically
from fairshot.labels import as_array, from_json, to_json
from fairshot.models.embedder import ModelSettings
from fairshot.recipes import DEFAULT_METHOD
from fairshot.training.hardware import choose_hardware, own_random_numbers

if TYPE_CHECKING:
    from fairshot.estimators.estimator import MethodEstimator

FILE_NAME, FORMAT = "estimator.json", 2
EstimatorT = TypeVar("EstimatorT", bound="MethodEstimator")


def save_estimator(estimator: MethodEstimator, folder: Path) -> None:
    """Save what an estimator has learnt; what an earlier call saved there stays until all is written."""
    method = estimator.method_
    content = save({name: value.contiguous().cpu() for name, value in method.tensors().items()})
    digest = hashlib.sha256(content).hexdigest()
    tensors = f"tensors-{digest[:16]}.safetensors"
    parameters = {key: value for key, value in estimator.get_params(deep=False).items() if key != "reporter"}
    note = {
        "format": FORMAT,
        "name": method.name,
        "parameters": parameters,
        "classes": [to_json(label) for label in estimator.classes_.tolist()],
        "base_classes": method.base_classes,
        "total_classes": method.total_classes if method.card.knows_future else None,
        "channels": method.embedder.channels,
        "model": method.embedder.settings.model_dump(mode="json"),
        "method": method.settings.model_dump(mode="json"),
        "history": estimator.history_,
        "tensors": tensors,
        "sha256": digest,
    }
    text = json.dumps(note, indent=1, default=_plain_number)
    remove_partial(folder)
    write_atomically(folder / tensors, content)
    write_json(folder / FILE_NAME, text)  # with it the new state replaces the old
    for old in folder.glob("tensors-*.safetensors"):
        if old.name != tensors:
            old.unlink(missing_ok=True)


def load_estimator(kind: type[EstimatorT], folder: Path, device: str | None) -> EstimatorT:
    """Load what `save_estimator` wrote; `device` replaces the one it was trained on."""
    path = folder / FILE_NAME
    if not path.is_file():
        raise PathUnusable(folder, f"holds no {FILE_NAME}: no estimator was saved there")
    try:
        return _restored(kind, folder, load_json(path), device)
    except UserError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError) as problem:
        raise DamagedFile(path, str(problem)) from problem


def _restored(kind: type[EstimatorT], folder: Path, note: dict[str, Any], device: str | None) -> EstimatorT:
    if note["format"] != FORMAT:
        raise PathUnusable(
            folder, f"was saved in format {note['format']}; this version of fairshot reads {FORMAT}"
        )
    saved, wanted = note.get("name", DEFAULT_METHOD), kind.kind.name
    if saved != wanted:
        raise PathUnusable(folder, f"holds an estimator of the method {saved}, and {wanted} was to be loaded")
    content = (folder / note["tensors"]).read_bytes()
    if hashlib.sha256(content).hexdigest() != note["sha256"]:
        raise ValueError(f"{note['tensors']} is not the file that was saved")
    estimator = kind(**note["parameters"])
    estimator.device = device or estimator.device
    hardware = choose_hardware(estimator.device)
    model = ModelSettings(**note["model"]).without_weights()  # they come from the file
    with own_random_numbers(hardware.device):
        settings = kind.kind.Settings(**note["method"])
        sizes = note["channels"], note["base_classes"], note.get("total_classes")
        method = kind.kind(settings, model, *sizes)
    method.embedder.to(hardware.device)
    method.restore(load(content))
    classes = [from_json(label) for label in note["classes"]]
    if len(classes) != method.seen_classes:
        raise ValueError(f"{len(classes)} labels for {method.seen_classes} classes")
    estimator.adopt(method_=method, classes_=as_array(classes), history_=note["history"])
    return estimator


def _plain_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise BadInput(f"parameter {value!r}", f"its type {type(value).__name__} cannot be saved")
