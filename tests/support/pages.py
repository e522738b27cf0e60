"""The code of documentation pages, executed or parsed as a reader would type it.

    run_python(ROOT / "docs" / "python.md", tmp_path)    # every ```python block, in order, in one namespace
    for line in typed_lines(ROOT / "docs" / "teaching.md"):
        line.program, line.words                         # every command of a shell block
    for line in command_lines(ROOT / "docs" / "teaching.md"):
        parse(line.words)                                # those of `fairshot`

A block below the comment `<!-- not run: why -->` is left out; the reason is part of the page.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

import typer

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(ROOT / name for name in ("examples/README.md", "results/README.md", "results/speed/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
SHELL = (
    "",
    "sh",
    "bash",
    "shell",
    "console",
)  # languages of blocks that hold commands; "": an indented block
_BLOCK = re.compile(
    r"^(?P<fence>[ ]*```)[ ]*(?P<language>\w*)[^\n]*\n(?P<fenced>.*?)^(?P=fence)[ ]*$"
    r"|(?:(?<=\n\n)|\A)(?P<indented>(?:[ ]{4}[^\n]*\n|\n(?=\n*[ ]{4}))+)",
    re.DOTALL | re.MULTILINE,
)
_NOT_RUN = re.compile(r"<!-- not run: [^\n]+ -->\s*\Z")
EAGER = {"--help", "--version", "--install-completion", "--show-completion"}  # options that end a command
_VARIABLE = re.compile(r"[A-Z_]+=")  # before a command: VARIABLE=value fairshot ...
PROGRAMS = {  # a block in which no line begins with one of these, and none with a prompt, holds no commands
    *("fairshot", "make", "pip", "python", "python3", "pytest", "pre-commit", "docker", "torchrun"),
    *(".", "curl", "hf", "tensorboard"),
}


@dataclass(frozen=True)
class CodeBlock:
    """A block of code of a page."""

    page: Path
    line: int  # of the page, where the code begins
    language: str  # as the fence names it; "" of a fence without one, and of an indented block
    code: str


@dataclass(frozen=True)
class CommandLine:
    """A command on a page."""

    page: Path
    line: int
    program: str
    words: tuple[str, ...]  # behind the program
    variables: tuple[tuple[str, str], ...] = ()  # set before it

    @property
    def command(self) -> str:
        """The command as it is typed, without variables and comments."""
        return f"{self.program} {shlex.join(self.words)}"

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line} {self.command}"


def code_blocks(page: Path, *languages: str) -> list[CodeBlock]:
    """Return the blocks of these languages in their order, or of all; without those marked as not run."""
    return [each for each in _blocks(page) if not languages or each.language in languages]


def _blocks(page: Path) -> Iterator[CodeBlock]:
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        if _NOT_RUN.search(text, 0, found.start()):
            continue
        part = "fenced" if found["fenced"] is not None else "indented"
        line = text.count("\n", 0, found.start(part)) + 1
        yield CodeBlock(page, line, found["language"] or "", dedent(found[part]))


def run_python(page: Path, folder: Path, names: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Execute all Python blocks of a page in a folder, one after the other in one namespace, and return it.

    `names` are there from the beginning. A traceback names the page and its line.
    """
    found = code_blocks(page, "python")
    assert found, f"{page} has no Python that is run"
    return run_code(found, folder, names)


def run_code(
    blocks: Sequence[CodeBlock], folder: Path, names: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Execute blocks of Python in a folder, in one namespace, and return it."""
    namespace: dict[str, Any] = {"__name__": "__main__", **(names or {})}
    with chdir(folder):
        for block in blocks:
            exec(compile("\n" * (block.line - 1) + block.code, str(block.page), "exec"), namespace)
    return namespace


def docstring_code(docstring: str | None) -> str:
    """Return the code of a docstring: its indented blocks, one after the other."""
    assert docstring
    first, _, rest = docstring.partition("\n")
    text = f"{first}\n{dedent(rest)}\n"
    return "\n".join(dedent(found["indented"]) for found in _BLOCK.finditer(text) if found["indented"])


def command_lines(page: Path) -> list[CommandLine]:
    """Return all calls of `fairshot` in the shell blocks of a page."""
    return [line for line in typed_lines(page) if line.program == "fairshot"]


def typed_lines(page: Path) -> list[CommandLine]:
    """Return all commands in the shell blocks of a page."""
    return [line for block in code_blocks(page, *SHELL) for line in typed_in(block)]


def typed_in(block: CodeBlock) -> list[CommandLine]:
    """Return the commands of a block, without what they print: those behind prompts, or all if it has any."""
    joined = re.sub(r"\\\n", lambda _: "\0", block.code)  # one command, whose lines still count
    found, prompted, line = [], False, block.line
    for text in joined.splitlines():
        typed = text.replace("\0", " ").strip()
        prompted |= typed.startswith("$ ")
        if typed and not typed.startswith("#"):
            found.append((line, typed))
        line += 1 + text.count("\0")
    if prompted:
        return [_command(block.page, line, typed[2:]) for line, typed in found if typed.startswith("$ ")]
    if not any(_program(typed) in PROGRAMS for _, typed in found):
        return []
    return [_command(block.page, line, typed) for line, typed in found]


def _program(typed: str) -> str:
    return next((word for word in typed.split() if not _VARIABLE.match(word)), "")


def _command(page: Path, line: int, typed: str) -> CommandLine:
    words = shlex.split(typed, comments=True)
    first = next(number for number, word in enumerate(words) if not _VARIABLE.match(word))
    variables = tuple((name, value) for name, _, value in (word.partition("=") for word in words[:first]))
    return CommandLine(page, line, words[first], tuple(words[first + 1 :]), variables)


@cache
def _command_line() -> Any:
    from fairshot.cli import app

    return typer.main.get_command(app)


def parse(words: Sequence[str]) -> str:
    """Parse the words behind `fairshot` by the real command line, run nothing, and return the command.

    Words that it refuses are a ValueError with its message.
    """
    command = _command_line()
    name, rest, context, path = "fairshot", list(words), None, []
    asks = not EAGER.isdisjoint(words)
    try:
        while True:
            context = command.make_context(name, rest, parent=context, resilient_parsing=asks)
            rest = [*context._protected_args, *context.args]
            if not hasattr(command, "commands") or (asks and not rest):
                return " ".join(path)
            name, command, rest = command.resolve_command(context, rest)
            if command is None:
                raise ValueError(f"fairshot {shlex.join(words)}: there is no such command")
            path.append(name)
    except typer.Exit:  # an option that answers by itself, as --backbone list does
        return " ".join(path)
    except Exception as problem:  # of typer's own copy of click, which it does not export
        if not hasattr(problem, "format_message"):
            raise
        raise ValueError(f"fairshot {shlex.join(words)}: {problem.format_message()}") from None
