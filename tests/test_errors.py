"""Errors can be sent to another process: their type, their fields and their message arrive."""

import pytest

from fairshot.errors import UserError
from support.example_errors import arguments_of, error_kinds
from support.pickling import pickled


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("kind", error_kinds(), ids=lambda kind: kind.__name__)
def test_an_error_is_the_same_in_another_process(kind, by_name):
    given = arguments_of(kind)
    problem = kind(**given) if by_name else kind(*given.values())
    again = pickled(problem)
    assert type(again) is kind
    assert str(again) == str(problem) != ""
    sent, arrived = ({name: repr(field) for name, field in vars(each).items()} for each in (problem, again))
    assert arrived == sent


def test_a_plain_error_keeps_its_message():
    assert str(pickled(UserError("file.txt is not YAML"))) == "file.txt is not YAML"


def test_an_error_is_made_of_its_fields_and_equal_to_itself_alone():
    class Unfit(UserError):
        wanted: int
        found: int = 0

        def __str__(self) -> str:
            return f"{self.found} of {self.wanted}"

    problem = Unfit(3, found=2)
    assert (problem.wanted, problem.found, str(problem)) == (3, 2, "2 of 3")
    assert problem == problem != Unfit(3, found=2)
    assert len({problem, Unfit(3, found=2)}) == 2
    with pytest.raises(TypeError):
        Unfit()
