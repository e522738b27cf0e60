"""Write the settings of committed results in their present names; no measured number changes.

    python scripts/migrate_results.py [FOLDER]

Rewrites recipes, the settings and commands of results, searches and trade-offs, and the settings that pages
and logs print. What is in present names already stays as it is.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from fairshot.documents import with_checksum

SSS = ("sss", "sss_bgmm")
DECISIONS = "separately|transferable_only|specific_only|pre|post|anomaly_detection"
RENAMED = {  # by section; that of the method for each method, or for those of SSS
    "training": {"low_size": "low_resolution", "low_share": "low_resolution_share"},
    "method of SSS": {"way": "decision", "own_share": "class_covariance_share"},
    "method of fact": {"looked_through": "nearest_virtual"},
}
REMOVED = {  # with the one value that every run had
    "training": {"nesterov": True},
    "method of SSS": {"margin": 0.0, "label_smoothing": 0.0, "sr_batch_norm": False},
}
ANYWHERE = {  # names that mean the setting wherever they stand; `way` is also the N of N-way
    "own_share": "class_covariance_share",
    "looked_through": "nearest_virtual",
    "low_size": "low_resolution",
    "low_share": "low_resolution_share",
}


def migrate_section(title: str, section: dict[str, Any]) -> dict[str, Any]:
    """Return a section of a recipe, or some of its keys, in present names."""
    present = {}
    for key, value in section.items():
        if key in REMOVED.get(title, {}):
            if value != REMOVED[title][key]:
                raise SystemExit(f"{key} is {value}, and no present setting says so")
        else:
            present[RENAMED.get(title, {}).get(key, key)] = value
    return present


def migrate_recipe(recipe: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe in present names."""
    name = recipe["method"]["name"]
    titles = {"training": "training", "method": f"method of {'SSS' if name in SSS else name}"}
    return {
        key: migrate_section(titles.get(key, ""), value) if isinstance(value, dict) else value
        for key, value in recipe.items()
    }


def migrate_json(value: Any) -> Any:
    """Return what a JSON file holds, with its recipes, settings of SSS and commands in present names."""
    if isinstance(value, list):
        return [migrate_json(each) for each in value]
    if not isinstance(value, dict):
        return value
    present = {}
    for key, each in value.items():
        if key == "recipe":
            present[key] = migrate_recipe(each)
        elif key == "command":
            present[key] = migrate_text(each)
        elif key == "method" and isinstance(each, dict):  # a point of a trade-off, which is of SSS
            present[key] = migrate_section("method of SSS", each)
        elif key == "changes":  # of a search: dotted keys
            present[key] = {migrate_text(f"{name}=")[:-1]: one for name, one in each.items()}
        else:
            present[key] = migrate_json(each)
    return present


def migrate_text(text: str) -> str:
    """Return a page, a log or a command with settings in present names: key=value."""
    text = re.sub(rf"\bway=(?={DECISIONS})", "decision=", text)
    return re.sub(rf"\b({'|'.join(ANYWHERE)})(?==)", lambda found: ANYWHERE[found[0]], text)


def rewrite_yaml(before: str) -> str:
    """Return a recipe's YAML in present names, in the form in which runs write it."""
    return yaml.safe_dump(migrate_recipe(yaml.safe_load(before)), sort_keys=False)


def rewrite_json(before: str) -> str:
    """Return JSON in present names, with the spaces that the file has."""
    before = re.sub(rf"(?<=\")({'|'.join(ANYWHERE)})(?=\")", lambda found: ANYWHERE[found[0]], before)
    values, end = json.loads(before), before[len(before.rstrip("\n")) :]
    if migrate_json(values) == values:
        return before
    for spaces in ({}, {"separators": (",", ":")}, {"indent": 1}):
        if json.dumps(values, **spaces) + end == before:
            return json.dumps(migrate_json(values), **spaces) + end
    raise SystemExit("this JSON was not written by fairshot")


def rewrite_trials(before: str) -> str:
    """Return the trials of a search as the present version writes them: an object with a checksum."""
    present = rewrite_json(before)
    return with_checksum(f'{{"trials": {present}}}') if isinstance(json.loads(present), list) else present


def add_base(path: Path, text: str) -> str:
    """Return a result that says whose base session was loaded, where only its command says so."""
    training = path.with_name("training.csv")
    if path.name != "result.json" or '"base":' in text or not training.is_file():
        return text
    words = shlex.split(json.loads(text)["command"])
    if "--base" not in words or len(training.read_text().splitlines()) > 1:  # the header alone: not trained
        return text
    return text.rstrip()[:-1] + f',"base":{json.dumps(words[words.index("--base") + 1])}}}\n'


def changes(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file that is not in present names, and what it is to hold."""
    rewriters = {".json": rewrite_json, ".md": migrate_text, ".txt": migrate_text, ".log": migrate_text}
    by_name = {"recipe.yaml": rewrite_yaml, "trials.json": rewrite_trials}
    for path in sorted(folder.rglob("*.*")):
        rewrite = by_name.get(path.name) or rewriters.get(path.suffix)
        if rewrite:
            before = path.read_text(encoding="utf-8")
            if (after := add_base(path, rewrite(before))) != before:
                yield path, after


if __name__ == "__main__":
    for path, after in changes(Path(sys.argv[1] if len(sys.argv) > 1 else "results")):
        path.write_text(after, encoding="utf-8")
        print(path)
