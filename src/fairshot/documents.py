"""Text files that may come from anywhere: bounded before they are parsed, and with a checksum where we write.

JSON begins with its checksum, `{"sha256":"...",`, which covers all that follows; YAML with a comment that
says the same. A file without one was written by hand or by an earlier version, and is read as it is. A file
that begins with anything like a checksum is damaged unless it fits.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from fairshot.errors import DamagedFile, FileRefused
from fairshot.files import write_atomically

JSON_BYTES = 2**28  # the largest file that is parsed; confusion matrices of 1,000 classes take 2**26
YAML_BYTES = 2**16  # recipes take 2**11
DEEPEST = 32  # lists and mappings inside each other
LARGEST_INTEGER = 2**63

_JSON_CHECKSUM = re.compile(rb'\{"sha256":"([0-9a-f]{64})",')
_YAML_CHECKSUM = re.compile(rb"# sha256: ([0-9a-f]{64})\n")
_LIKE_A_CHECKSUM = re.compile(rb"[0-9a-f]{16}")  # half of what one flipped bit leaves at least
_WHERE = 96  # bytes at the beginning of a file that a checksum lies in
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))

Model = TypeVar("Model", bound=BaseModel)


class Document(BaseModel):
    """Values that are kept in a JSON file; keys that are not among its fields are refused."""

    model_config = ConfigDict(extra="forbid")


class BadYAML(ValueError):
    """A text is not YAML, or not YAML that is read here."""


def write_json(path: Path, text: str) -> None:
    """Write a JSON object, given as text, beginning with the checksum of the rest."""
    rest = text[1:].encode()
    write_atomically(path, f'{{"sha256":"{hashlib.sha256(rest).hexdigest()}",'.encode() + rest)


def read_json(path: Path) -> bytes:
    """Return the JSON text of a file without its checksum; damaged, huge and deep ones are refused."""
    content = _read(path, JSON_BYTES)
    if found := _check(path, content, _JSON_CHECKSUM):
        content = b"{" + content[found.end() :]
    _check_depth(path, content)
    return content


def load_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        values = json.loads(read_json(path))
    except (ValueError, RecursionError) as problem:
        raise DamagedFile(path, f"it is no JSON: {problem}") from None
    if not isinstance(values, dict):
        raise FileRefused(path, "it holds no JSON object")
    return values


def load_foreign_json(path: Path) -> Any:
    """Read JSON that another program wrote, which has no checksum of ours; huge and deep ones are refused."""
    content = _read(path, JSON_BYTES)
    _check_depth(path, content)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as problem:
        raise FileRefused(path, f"it is no JSON: {problem}") from None


def read_model(path: Path, kind: type[Model], what: str) -> Model:
    """Read what `write_json` wrote of a pydantic model; `what` names it in messages."""
    try:
        return kind.model_validate_json(read_json(path))
    except ValidationError as problem:
        if problem.errors()[0]["type"] == "json_invalid":
            raise DamagedFile(path, f"it is no JSON: {first_problem(problem)}") from None
        raise FileRefused(path, f"it is not {what} this version can read: {first_problem(problem)}") from None


def first_problem(problem: ValidationError) -> str:
    """Name the first value that does not fit, and how many there are."""
    first = problem.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"]))
    more = f" (and {problem.error_count() - 1} more)" if problem.error_count() > 1 else ""
    return f"{where + ': ' if where else ''}{first['msg']}{more}"


def write_yaml(path: Path, text: str) -> None:
    """Write YAML with a checksum."""
    content = text.encode()
    digest = hashlib.sha256(content).hexdigest()
    write_atomically(path, f"# sha256: {digest}\n".encode() + content)


def read_yaml_text(path: Path) -> str:
    """Return the text of a YAML file without its checksum; damaged and huge ones are refused."""
    content = _read(path, YAML_BYTES)
    if found := _check(path, content, _YAML_CHECKSUM):
        content = content[found.end() :]
    try:
        return content.decode()
    except UnicodeDecodeError as problem:
        raise FileRefused(path, f"it is damaged or no text: {problem}") from None


def parse_yaml(text: str) -> Any:
    """Parse YAML without aliases, deep nesting and huge integers: a few bytes of those can take hours."""
    if len(text) > YAML_BYTES:
        raise BadYAML(f"it is longer than {YAML_BYTES:,} characters")
    try:
        return yaml.load(text, _BoundedLoader)  # noqa: S506 - it derives from SafeLoader
    except BadYAML:
        raise
    except yaml.YAMLError as problem:
        raise BadYAML(str(problem)) from None
    except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError) as problem:
        # from constructors of PyYAML, for dates like 2001-99-99 and tags like `!!bool 3`
        raise BadYAML(f"a value cannot be read: {type(problem).__name__}") from None


class _BoundedLoader(yaml.SafeLoader):
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise BadYAML("it holds an alias (*name), which is not read")
        if self.depth == DEEPEST:
            raise BadYAML(f"it nests more than {DEEPEST} lists and mappings")
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_integer(self, node: Any) -> int:
        if len(node.value) > _WHERE:
            raise BadYAML(f"it holds an integer of {len(node.value):,} characters")
        value: int = self.construct_yaml_int(node)
        if abs(value) > LARGEST_INTEGER:
            raise BadYAML("it holds an integer of more than 64 bits")
        return value


_BoundedLoader.add_constructor("tag:yaml.org,2002:int", _BoundedLoader.construct_integer)


def _read(path: Path, at_most: int) -> bytes:
    """Return the content of a file unless it is too large."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= at_most:
                return file.read(size)
    except OSError as problem:
        raise FileRefused(path, f"it cannot be read: {problem.strerror}") from None
    raise FileRefused(path, f"it has more than {at_most:,} bytes")


def _check(path: Path, content: bytes, checksum: re.Pattern[bytes]) -> re.Match[bytes] | None:
    """Return the checksum that a content begins with, if it begins with one."""
    found = checksum.match(content)
    if found is None:
        beginning = content[:_WHERE].partition(b"\n")[0]
        if b"sha256" in beginning or _LIKE_A_CHECKSUM.search(beginning):
            raise DamagedFile(path, "its checksum cannot be read")
        if b"\0" in content:
            raise DamagedFile(path, "it holds zeros instead of text")
    elif hashlib.sha256(memoryview(content)[found.end() :]).hexdigest().encode() != found[1]:
        raise DamagedFile(path, "its content does not fit its checksum, which you remove if you changed it")
    return found


def _check_depth(path: Path, content: bytes) -> None:
    """Refuse JSON with more than `DEEPEST` brackets open at once; those in strings do not count."""
    depth = 0
    for bracket in _STRING.sub(b"", content).translate(None, _NO_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > DEEPEST:
            raise FileRefused(path, f"it nests more than {DEEPEST} lists and objects")
