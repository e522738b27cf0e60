"""A durable store of taught classes: the embedder and the classifiers of SSS, at work."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairshot.teaching.archive import export_archive, import_archive
    from fairshot.teaching.creation import check_free, create_store
    from fairshot.teaching.evaluating import evaluate, read_folder
    from fairshot.teaching.from_backbone import from_backbone
    from fairshot.teaching.from_run import from_run
    from fairshot.teaching.onnx_export import export_onnx
    from fairshot.teaching.store import Store

__all__ = [
    "Store",
    "check_free",
    "create_store",
    "evaluate",
    "export_archive",
    "export_onnx",
    "from_backbone",
    "from_run",
    "import_archive",
    "read_folder",
]

_ELSEWHERE = {  # loaded when first asked for: all need torch, and some all of training
    "Store": "store",
    "check_free": "founding",
    "create_store": "founding",
    "evaluate": "evaluating",
    "export_archive": "archive",
    "export_onnx": "onnx_file",
    "from_backbone": "backbones",
    "from_run": "runs",
    "import_archive": "archive",
    "read_folder": "evaluating",
}


def __getattr__(name: str) -> Any:
    """Load a part of this room."""
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ELSEWHERE[name]}"), name)
