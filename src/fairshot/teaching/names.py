"""Names of classes: text that a person typed, never a path."""

from __future__ import annotations

import re
import unicodedata

from fairshot.errors import UserError

UNKNOWN = "unknown"  # the answer for images of no known class
LONGEST = 100
# Unicode categories; "Cf" holds characters that reverse the direction of text.
INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
JOINERS = ("\u200c", "\u200d")  # part of the spelling of some languages and emoji


def checked_name(name: str) -> str:
    """Return a class name in its one spelling (Unicode NFC, no outer blanks), or say why it is none."""
    plain = unicodedata.normalize("NFC", name).strip()
    if not plain.strip("".join(JOINERS)):
        raise UserError("the name of a class is empty; give it at least one visible character")
    if len(plain) > LONGEST:
        raise UserError(f"the name {plain[:20]!r}... has {len(plain)} characters; at most {LONGEST} are kept")
    for character in plain:
        if unicodedata.category(character) in INVISIBLE and character not in JOINERS:
            raise UserError(f"the name {plain!r} holds the invisible character {character!r}; leave it out")
    parts = re.split(r"[/\\]", plain)
    if ".." in parts or "." in parts or not parts[0] or re.match(r"[A-Za-z]:\\|~/", plain):
        raise UserError(f"{plain!r} looks like the path of a file; the name of a class is just text")
    if plain.casefold() == UNKNOWN:
        raise UserError(f"{plain!r} is the answer for images of no known class; give the class another name")
    return plain
