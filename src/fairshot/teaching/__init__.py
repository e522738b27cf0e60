"""A durable store of taught classes: the embedder and the classifier of SSS, to be taught and asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairshot.lazy import lazy_names

if TYPE_CHECKING:
    from fairshot.teaching.archive import export_archive as export_archive
    from fairshot.teaching.archive import import_archive as import_archive
    from fairshot.teaching.backbone_spec import from_backbone as from_backbone
    from fairshot.teaching.class_folders import teach_folder as teach_folder
    from fairshot.teaching.creation import StoreSpec as StoreSpec
    from fairshot.teaching.evaluating import choose_confidence as choose_confidence
    from fairshot.teaching.evaluating import evaluate as evaluate
    from fairshot.teaching.evaluating import read_folder as read_folder
    from fairshot.teaching.evaluation_page import write_evaluation_page as write_evaluation_page
    from fairshot.teaching.folders import check_free as check_free
    from fairshot.teaching.mistakes import find_mistakes as find_mistakes
    from fairshot.teaching.onnx_export import export_onnx as export_onnx
    from fairshot.teaching.photo_import import import_photos as import_photos
    from fairshot.teaching.records import Records as Records
    from fairshot.teaching.run_spec import from_run as from_run
    from fairshot.teaching.store import Store as Store

__getattr__ = lazy_names(__name__, __file__)
