"""Names of classes: text that a person typed, never a path."""

from __future__ import annotations

import re
import unicodedata

from fairshot.teaching.errors import BadName

UNKNOWN = "unknown"  # the answer for images of no known class
LONGEST = 100
LONGEST_FOLDER = 200  # bytes; file systems take 255
# Unicode categories; "Cf" holds characters that reverse the direction of text.
INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
JOINERS = ("\u200c", "\u200d")  # part of the spelling of some languages and emoji
# Shown as nothing, though their category says otherwise: fillers, the empty Braille pattern, a null notehead.
BLANKS = set("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\U0001d159")
# Change how the character before them is shown, and are nothing alone.
VARIANTS = {*map(chr, (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))}


def checked_name(name: str) -> str:
    """Return a class name in its one spelling (Unicode NFC, no outer blanks), or say why it is none."""
    plain = unicodedata.normalize("NFC", name).strip()
    if all(character in VARIANTS or character in JOINERS or character.isspace() for character in plain):
        raise BadName(plain, "is empty; give the class at least one visible character")
    if len(plain) > LONGEST:
        raise BadName(plain, f"has {len(plain)} characters; at most {LONGEST} are kept")
    for character in plain:
        invisible = unicodedata.category(character) in INVISIBLE and character not in (*JOINERS, *VARIANTS)
        if invisible or character in BLANKS:
            raise BadName(plain, f"holds the invisible character {character!r}; leave it out")
    parts = re.split(r"[/\\]", plain)
    if ".." in parts or "." in parts or not parts[0] or re.match(r"[A-Za-z]:\\|~/", plain):
        raise BadName(plain, "looks like the path of a file; that of a class is just text")
    if plain.casefold() == UNKNOWN:
        raise BadName(plain, "is the answer for images of no known class; give the class another one")
    return plain


def folder_name(name: str) -> str:
    """Return the name of a class, or any text, as the name of a folder: one part of a path, and visible.

    What cannot stand in one is replaced by a blank; nothing but such characters gives "unnamed".
    """
    plain = "".join(
        " " if character in r'/\:*?"<>|' or unicodedata.category(character) in INVISIBLE else character
        for character in unicodedata.normalize("NFC", name)
    )
    plain = " ".join(plain.split()).strip(". ")
    while len(plain.encode()) > LONGEST_FOLDER:
        plain = plain[:-1]
    return plain.strip(". ") or "unnamed"
