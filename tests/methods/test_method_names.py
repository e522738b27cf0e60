"""A new method is one new file: no other file of the package names a method."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fairshot
from fairshot.methods import methods
from fairshot.recipes.recipe import DEFAULT_METHOD

PACKAGE = Path(fairshot.__file__).parent
# What is made of the package's own method: the store that is taught, the choice of its gate, attacks on its
# Calibration.
OF_DEFAULT_METHOD = ("teaching/", "studies/")
# Lists the methods, so that editors and type checkers know them as estimators; one that is missing works too.
LIST = "estimators/methods.py"


def mentions(source: str) -> Iterator[tuple[str, str]]:
    """Find methods that are named in a string (alone, or as a recipe) or imported: name and how."""
    names = set(methods())
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from ((word, "named") for word in {node.value, node.value.rpartition("/")[2]} & names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            yield from _imports(imported, names)
        elif isinstance(node, ast.Import):
            yield from _imports([alias.name for alias in node.names], names)


def _imports(modules: list[str], names: set[str]) -> Iterator[tuple[str, str]]:
    found = {module.removeprefix("fairshot.methods.") for module in modules}
    yield from ((name, "imported") for name in sorted(found & names))


def test_a_method_is_named_in_its_own_file_alone():
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        for name, how in mentions(path.read_text(encoding="utf-8")):
            of_its_own = file in (f"methods/{name}.py", "recipes/recipe.py")
            of_its_own |= file == LIST and how == "imported"
            made_of_it = name == DEFAULT_METHOD and how == "imported" and file.startswith(OF_DEFAULT_METHOD)
            if not of_its_own and not made_of_it:
                found.append(f"{file}: {name} is {how}")
    assert not found


@pytest.mark.parametrize(
    "line",
    [
        'if method == "ncm": pass',
        'load_recipe("doodles/ncm")',
        "from fairshot.methods.ncm import NCM",
        "from fairshot.methods import ncm",
        "import fairshot.methods.ncm",
    ],
)
def test_a_mention_is_seen(line):
    assert [name for name, _ in mentions(line)] == ["ncm"]
    assert not list(mentions('"ncms and fact are words, as is the room fairshot.methods"'))
