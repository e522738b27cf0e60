"""Sections of the page that hold figures alone: each file of this folder that has a `SECTION` brings one."""

import importlib
import pkgutil

from fairshot.reporting import figures

_NAMES = [file.name for file in pkgutil.iter_modules(figures.__path__) if file.name != "sections"]
_FILES = [importlib.import_module(f"{figures.__name__}.{name}") for name in _NAMES]
SECTIONS = sorted(
    (file.SECTION for file in _FILES if hasattr(file, "SECTION")), key=lambda section: section.position
)
