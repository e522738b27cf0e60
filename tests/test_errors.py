"""Errors can be sent to another process: their type, their fields and their message arrive."""

import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import fairshot
from fairshot.benchmarks.cifar100 import DATASET
from fairshot.errors import NoGPU, UserError
from support.pickling import pickled

EXAMPLES = {  # by how the annotation of an argument begins
    "Path": Path("folder"),
    "int": 3,
    "float": 0.5,
    "Iterable": ("one", "two"),
    "Sequence": ("one", "two"),
    "Collection": ("one", "two"),
    "tuple": (Path("one"), Path("two")),
    "dict[str, int]": {"one": 1},
    "Mapping": {"one": "two"},
    "Dataset": DATASET,
    "UserError": NoGPU(),
}


def all_errors() -> list[type[UserError]]:
    for module in pkgutil.walk_packages(fairshot.__path__, "fairshot."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    kinds = [UserError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return kinds[1:]


def example(annotation: str) -> object:
    return next((value for start, value in EXAMPLES.items() if annotation.startswith(start)), "a text")


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_an_error_is_the_same_in_another_process(kind, by_name):
    given = {
        each.name: example(str(each.annotation))
        for each in inspect.signature(kind).parameters.values()
        if each.kind is not each.VAR_POSITIONAL
    }
    problem = kind(**given) if by_name else kind(*given.values())
    again = pickled(problem)
    assert type(again) is kind
    assert str(again) == str(problem) != ""
    sent, arrived = ({name: repr(field) for name, field in vars(each).items()} for each in (problem, again))
    assert arrived == sent


def test_a_plain_error_keeps_its_message():
    assert str(pickled(UserError("file.txt is not YAML"))) == "file.txt is not YAML"
