"""Methods from a user's Python file, given as `file.py:Class` wherever a method is named."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from typing import Any, NamedTuple

from fairshot.errors import PathUnusable, did_you_mean
from fairshot.methods.method import Method

PLUGIN_MARK = ".py:"  # what `file.py:Class` has and the name of a method has not
PLUGIN_COPY = "method.py"  # the copy of the file that a run keeps beside its recipe


class Plugin(NamedTuple):
    """A loaded method."""

    file: Path
    class_name: str
    method: type[Method[Any]]


_loaded: dict[str, Plugin] = {}  # by the name of the method


def plugin_methods() -> dict[str, type[Method[Any]]]:
    """Return the methods that this process has loaded from files, by name."""
    return {name: plugin.method for name, plugin in _loaded.items()}


def plugin_sources() -> list[str]:
    """Return the loaded methods as `file.py:Class`, so that another process can load them."""
    return [f"{plugin.file}:{plugin.class_name}" for plugin in _loaded.values()]


def plugin_file(name: str) -> Path | None:
    """Return the file of a method; None if it is a method of the package."""
    return _loaded[name].file if name in _loaded else None


def load_plugin(source: str) -> type[Method[Any]]:
    """Load `file.py:Class`; from then on the method is known by its name.

    A second call, or one with a copy of the file, returns the same class.
    """
    if known := loaded_plugin(source):
        return known
    plugin = _import_plugin(*_split(source))
    name = plugin.method.name
    if name in _loaded or (Path(__file__).parent / f"{name}.py").is_file():
        raise PathUnusable(plugin.file, f"has the name {name!r} of another method; name this one otherwise")
    _loaded[name] = plugin
    return plugin.method


def loaded_plugin(source: str) -> type[Method[Any]] | None:
    """Return the method that was loaded from `file.py:Class`, or from another copy of the file."""
    file, name = _split(source)
    same = (each.method for each in _loaded.values() if each.class_name == name and _equal(each.file, file))
    return next(same, None)


def plugins_in(file: str) -> str:
    """Return `file.py:Class` for each class with a `name` in a Python file, which is not run."""
    return " or ".join(f"{file}:{class_name}" for class_name in _class_names(Path(file)) or ["Class"])


def plugin_class(file: Path, name: str) -> str | None:
    """Return the class whose `name` this is in a Python file, which is not run."""
    return next((class_name for class_name, value in _class_names(file).items() if value == name), None)


def _class_names(file: Path) -> dict[str, object]:
    """Return the attribute `name` of each class that has one; None where it is not a literal."""
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return {}
    names: dict[str, object] = {}
    for defined in (each for each in body if isinstance(each, ast.ClassDef)):
        for statement in defined.body:
            match statement:
                case ast.Assign([ast.Name("name")], value) | ast.AnnAssign(ast.Name("name"), value=value):
                    names[defined.name] = value.value if isinstance(value, ast.Constant) else None
    return names


def _split(source: str) -> tuple[Path, str]:
    file, _, class_name = source.rpartition(":")
    return Path(file).resolve(), class_name


def _equal(one: Path, other: Path) -> bool:
    return one == other or (one.is_file() and other.is_file() and one.read_bytes() == other.read_bytes())


def _import_plugin(file: Path, class_name: str) -> Plugin:
    if not file.is_file():
        raise PathUnusable(file, "is no file; a method of your own is given as file.py:Class")
    spec = importlib.util.spec_from_file_location(f"fairshot_plugin_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where the classes of the file resolve their annotations
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise PathUnusable(file, f"cannot be imported: {type(problem).__name__}: {problem}") from problem
    classes = {
        key: item for key, item in vars(module).items() if isinstance(item, type) and issubclass(item, Method)
    }
    if class_name not in classes:
        own = [item.__name__ for item in classes.values() if item.__module__ == spec.name]
        raise PathUnusable(
            file,
            f"has no class {class_name!r} that derives from fairshot's Method{did_you_mean(class_name, own)}",
        )
    method = classes[class_name]
    if missing := [part for part in ("name", "card", "Settings") if not hasattr(method, part)]:
        raise PathUnusable(
            file, f"has a {class_name} that lacks {', '.join(missing)}; see docs/add-your-method.md"
        )
    return Plugin(file, class_name, method)
