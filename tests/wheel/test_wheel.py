"""The package as people install it: a wheel alone, in an environment of its own, outside the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
SMALL = [
    *("--set", "training.epochs=1", "--set", "training.batch=60", "--set", "model.size=12"),
    *("--set", "benchmark.base_classes=6", "--set", "benchmark.way=2", "--set", "benchmark.sessions=2"),
]
NEEDED = ("pyproject.toml", "README.md", "LICENSE", "src")


def call(folder: Path, *command: str | Path, **environment: str) -> str:
    """Run a program in a folder outside the checkout, without what leads Python back into it."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**kept, "OMP_NUM_THREADS": "1", **environment},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wheel")


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    """Build both distributions from a copy of the source, without a network, and check them."""
    pytest.importorskip("build")
    pytest.importorskip("twine")
    source = folder / "source"
    source.mkdir()
    for name in NEEDED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, source / name)
    shutil.copyfile(ROOT / ".gitignore", source / ".gitignore")
    call(folder, sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", source)
    built = sorted((folder / "dist").iterdir())
    assert [path.suffix for path in built] == [".whl", ".gz"]
    call(folder, sys.executable, "-m", "twine", "check", "--strict", *built)
    return built[0]


@pytest.fixture(scope="module")
def scripts(folder: Path, wheel: Path) -> Path:
    """Install the wheel; packages of others are those of the running environment, so nothing is fetched."""
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    site = Path(call(folder, python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index")
    call(folder, *pip, wheel)
    # behind its own packages; a .pth in the folder named there, as the checkout's, is not read again
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


def test_the_wheel_holds_what_the_package_needs_and_nothing_else(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    packaged = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "fairshot").rglob("*.*")}
    missing = {name for name in packaged if "__pycache__" not in name} - set(names)
    assert missing == set()
    assert all(name.startswith(("fairshot/", "fairshot-")) for name in names)


def test_a_wheel_alone_runs_an_experiment_and_tells_what_is_there(scripts: Path, folder: Path) -> None:
    where = call(folder, scripts / "python", "-c", "import fairshot; print(fairshot.__file__)")
    assert Path(where.strip()).is_relative_to(folder / "venv")
    ran = call(folder, scripts / "fairshot", "run", "doodles/ncm", *SMALL)
    assert "ncm" in ran
    assert (folder / "runs" / "doodles-ncm-seed0" / "result.json").is_file()
    assert list((folder / "runs" / "doodles-ncm-seed0" / "figures").iterdir())
    found = json.loads(call(folder, scripts / "fairshot", "doctor", "--json"))
    assert found["version"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert found["problems"] == []
    assert Path(found["benchmarks"]["doodles"]).is_relative_to(folder / "venv")


def test_completion_is_shown_installed_and_answers(scripts: Path, folder: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    home = {"HOME": str(folder), "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    both = (
        "fairshot --show-completion && fairshot --install-completion; exit $?"  # bash is the shell it finds
    )
    assert "_FAIRSHOT_COMPLETE=complete_bash" in call(folder, "bash", "-c", both, **home)
    assert "fairshot" in (folder / ".bashrc").read_text()
    asked = {"_FAIRSHOT_COMPLETE": "complete_bash", "COMP_WORDS": "fairshot doc", "COMP_CWORD": "1"}
    assert call(folder, scripts / "fairshot", **asked).split() == ["doctor"]
