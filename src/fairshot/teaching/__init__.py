"""A durable store of taught classes: the embedder and the classifier of SSS, to be taught and asked."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairshot.teaching.archive import export_archive, import_archive
    from fairshot.teaching.backbone_spec import from_backbone
    from fairshot.teaching.creation import StoreSpec
    from fairshot.teaching.evaluating import choose_confidence, evaluate, read_folder
    from fairshot.teaching.folders import check_free
    from fairshot.teaching.onnx_export import export_onnx
    from fairshot.teaching.run_spec import from_run
    from fairshot.teaching.store import Store

__all__ = [
    "Store",
    "StoreSpec",
    "check_free",
    "choose_confidence",
    "evaluate",
    "export_archive",
    "export_onnx",
    "from_backbone",
    "from_run",
    "import_archive",
    "read_folder",
]

_MODULES = {  # loaded when first asked for: all need torch, and some all of training
    "Store": "store",
    "StoreSpec": "creation",
    "check_free": "folders",
    "choose_confidence": "evaluating",
    "evaluate": "evaluating",
    "export_archive": "archive",
    "export_onnx": "onnx_export",
    "from_backbone": "backbone_spec",
    "from_run": "run_spec",
    "import_archive": "archive",
    "read_folder": "evaluating",
}


def __getattr__(name: str) -> Any:
    """Load a part of this room."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
