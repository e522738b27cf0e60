"""How the code of documentation pages is found and run."""

import pytest

from support.pages import CodeBlock, code_blocks, command_lines, docstring_code, parse, run_python

PAGE = """# A page

```python
first = 1
```

    $ fairshot run doodles/ncm --seed 1   # a comment
    $ OMP_NUM_THREADS=1 fairshot list

<!-- not run: it needs a network -->

```python
raise RuntimeError
```

=== "A tab"

    ```python title="a.py"
    second = first + 1
    ```

```sh
fairshot compare ncm \\
    teen
fairshot classes 'my store'
```
"""


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_blocks_are_found_with_their_lines(page):
    assert code_blocks(page, "python") == [
        CodeBlock(page, 4, "python", "first = 1\n"),
        CodeBlock(page, 19, "python", "second = first + 1\n"),
    ]


def test_python_is_run_in_one_namespace_and_an_error_names_the_line_of_the_page(page, tmp_path):
    assert run_python(page, tmp_path, {"third": 3})["second"] == 2
    page.write_text(PAGE.replace("first + 1", "first / 0"))
    with pytest.raises(ZeroDivisionError) as problem:
        run_python(page, tmp_path)
    assert (problem.traceback[-1].path, problem.traceback[-1].lineno + 1) == (page, 19)


def test_commands_are_found_and_parsed_by_the_real_command_line(page):
    found = [(line.line, *line.words) for line in command_lines(page)]
    assert found == [
        (7, "run", "doodles/ncm", "--seed", "1"),
        (8, "list"),
        (23, "compare", "ncm", "teen"),
        (25, "classes", "my store"),
    ]
    assert [parse(line.words) for line in command_lines(page)] == ["run", "list", "compare", "classes"]
    assert parse(["data", "get", "cub200"]) == "data get"
    assert parse(["teach", "--help"]) == "teach"
    assert parse(["--install-completion"]) == ""
    for wrong in (["run", "--sed", "1"], ["rnu"], ["run", "--seed", "one"], ["classes"], ["rnu", "--help"]):
        with pytest.raises(ValueError, match=f"fairshot {wrong[0]}"):
            parse(wrong)


def test_the_code_of_a_docstring_is_its_indented_blocks():
    text = """Do it.

        first = 1

        second = 2

    And no more.
    """
    assert docstring_code(text) == "first = 1\n\nsecond = 2\n"
