"""Code that a recipe file names is run only if whoever runs the recipe has said so."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from fairshot.cli import trust as module
from fairshot.cli.trust import load_trusted
from fairshot.errors import CodeNotTrusted, DamagedFile, UserError
from fairshot.methods import plugins
from fairshot.recipes import load_recipe, write_recipe
from support.commands import fairshot

CODE = """from pathlib import Path

from fairshot.methods.ncm import NCM

Path({trace!r}).touch()


class Mild(NCM):
    name = "mild"
"""


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A recipe that names code, which leaves a trace when it is run."""
    monkeypatch.setattr(plugins, "_loaded", {})
    (tmp_path / "mild.py").write_text(CODE.format(trace=str(tmp_path / "trace")))
    text = load_recipe("doodles/ncm").as_yaml().replace("name: ncm", "name: mild.py:Mild")
    (tmp_path / "recipe.yaml").write_text(text)
    return tmp_path / "recipe.yaml"


@pytest.mark.parametrize(
    "command",
    [
        ["run", "recipe.yaml"],
        ["recipe", "show", "recipe.yaml"],
        ["tune", "recipe.yaml", "--grid", "seed=[1]"],
        ["ablate", "components", "recipe.yaml"],
        ["bench", "train", "recipe.yaml"],
    ],
)
def test_commands_refuse_it_without_a_word_of_the_user(stranger, command):
    refused = fairshot(stranger.parent, *command)
    assert refused.process.exitcode == 2
    assert refused.stderr.strip().endswith("--trust")
    assert "mild.py" in refused.stderr
    assert not (stranger.parent / "trace").exists()


def test_with_it_the_code_is_run(stranger):
    shown = fairshot(stranger.parent, "recipe", "show", "recipe.yaml", "--trust")
    assert shown.process.exitcode == 0, shown.stderr
    assert "name: mild" in shown.stdout
    assert (stranger.parent / "trace").exists()


def test_what_is_typed_is_the_users_own_word(stranger):
    code = f"{stranger.parent / 'mild.py'}:Mild"
    assert load_recipe(f"doodles/{code}").method_name == "mild"
    plugins._loaded.clear()
    assert load_recipe(str(stranger), [f"method.name={code}"]).method_name == "mild"
    assert load_recipe(str(stranger)).method_name == "mild"  # which this process has loaded meanwhile


@pytest.mark.parametrize("override", ["method.name=mild", "training.epochs=3", "seed=mild.py:Mild"])
def test_other_changes_are_no_word_for_the_code(stranger, override):
    run = stranger.parent / "run"
    run.mkdir()
    code = (stranger.parent / "mild.py").read_bytes()
    (run / "method.py").write_bytes(code)
    text = load_recipe("doodles/ncm").as_yaml().replace("name: ncm", "name: mild")
    (run / "recipe.yaml").write_text(text)
    with pytest.raises(UserError) as refused:
        load_recipe(str(run / "recipe.yaml"), [override])
    assert isinstance(refused.value, CodeNotTrusted)
    assert refused.value.code == run / "method.py"
    assert not (stranger.parent / "trace").exists()


def at_a_terminal(monkeypatch, answer: bool) -> list[str]:
    asked: list[str] = []

    def confirm(text: str, abort: bool, err: bool) -> None:
        asked.append(text)
        if not answer:
            raise click.Abort

    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(
        module, "sys", SimpleNamespace(stdin=terminal, stderr=terminal, argv=["fairshot", "run"])
    )
    monkeypatch.setattr(module.typer, "confirm", confirm)
    return asked


def test_at_a_terminal_it_is_asked_for(stranger, monkeypatch):
    asked = at_a_terminal(monkeypatch, answer=False)
    with pytest.raises(click.Abort):
        load_trusted(str(stranger), [], None, trust=False)
    assert "mild.py" in asked[0]
    assert not (stranger.parent / "trace").exists()
    at_a_terminal(monkeypatch, answer=True)
    assert load_trusted(str(stranger), [], 7, trust=False).seed == 7
    assert (stranger.parent / "trace").exists()
    assert module.sys.argv[-1] == "--trust"  # which its record and further processes have
    assert "--trust" not in sys.argv


def test_a_damaged_copy_of_the_code_is_not_run(stranger):
    run, code = stranger.parent / "run", (stranger.parent / "mild.py").read_bytes()
    recipe = load_recipe(f"doodles/{stranger.parent / 'mild.py'}:Mild")
    plugins._loaded.clear()
    (stranger.parent / "trace").unlink()
    write_recipe(run / "recipe.yaml", recipe, code)
    for damaged in (code.replace(b"mild", b"wild"), code[:-30], bytes(len(code)), b""):
        Path(run / "method.py").write_bytes(damaged)
        with pytest.raises(DamagedFile) as refused:
            load_recipe(str(run / "recipe.yaml"), trust=True)
        assert refused.value.path == run / "method.py"
    assert not (stranger.parent / "trace").exists()
    Path(run / "method.py").write_bytes(code)
    assert load_recipe(str(run / "recipe.yaml"), trust=True) == recipe
