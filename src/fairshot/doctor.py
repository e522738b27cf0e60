"""What there is on this machine: versions, device, data, caches, free disk, and which extras are missing."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import platformdirs
from pydantic import BaseModel

from fairshot import benchmarks
from fairshot.benchmarks.cache import cache_folder
from fairshot.benchmarks.dataset import data_folder
from fairshot.extras import PACKAGE, install_command, problem_of, requirements, version_of


class Extra(BaseModel):
    """Packages that only some commands need."""

    missing: list[str]  # requirements that are not met
    command: str  # that installs them


class Cache(BaseModel):
    """A folder that grows, and can be removed: what is missing is made or fetched again."""

    what: str
    path: Path
    size: int  # bytes


class Disk(BaseModel):
    """The disk of a folder."""

    path: Path
    free: int  # bytes


class Device(BaseModel):
    """What a run would train on."""

    name: str
    gpus: list[str]
    cores: int
    memory: int  # bytes


class Diagnosis(BaseModel):
    """All of it."""

    version: str
    python: str
    platform: str
    packages: dict[str, str]  # those that fairshot needs
    problems: list[str]  # packages that it needs, and that are missing or too old
    device: Device
    data_folder: Path
    benchmarks: dict[str, Path | None]  # where each is found
    caches: list[Cache]
    disks: list[Disk]
    extras: dict[str, Extra]


def diagnose(root: Path | None = None) -> Diagnosis:
    """Look at this machine; benchmarks are looked for in `root`, or where runs look for them."""
    folder = data_folder(root)
    needed = requirements()[""]
    return Diagnosis(
        version=version_of(PACKAGE) or "not installed as a package",
        python=platform.python_version(),
        platform=platform.platform(),
        packages={each.name: version_of(each.name) or "missing" for each in needed},
        problems=[problem for each in needed if (problem := problem_of(each))],
        device=_device(),
        data_folder=folder,
        benchmarks={name: dataset.find(folder) for name, dataset in benchmarks.DATASETS.items()},
        caches=list(_caches()),
        disks=[Disk(path=path, free=shutil.disk_usage(_existing(path)).free) for path in _places(folder)],
        extras=_extras(),
    )


def _extras() -> dict[str, Extra]:
    return {
        name: Extra(missing=list(filter(None, map(problem_of, needed))), command=install_command(name))
        for name, needed in requirements().items()
        if name
    }


def _device() -> Device:
    try:
        import torch
    except ImportError as problem:
        name, gpus = f"unknown: torch cannot be imported ({problem})", []
    else:
        name = "cuda" if torch.cuda.is_available() else "cpu"
        gpus = [
            f"{torch.cuda.get_device_name(index)}, "
            f"{torch.cuda.get_device_properties(index).total_memory / 1e9:.0f} GB"
            for index in range(torch.cuda.device_count())
        ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Device(name=name, gpus=gpus, cores=os.cpu_count() or 1, memory=memory)


def _caches() -> Iterator[Cache]:
    """Yield the folders of fairshot in the platform's cache, and that of the models fetched from a hub."""
    from huggingface_hub.constants import HF_HUB_CACHE

    own = platformdirs.user_cache_path(PACKAGE)
    folders = {path: path.name for path in sorted(own.iterdir()) if path.is_dir()} if own.is_dir() else {}
    folders[cache_folder()] = "decoded pictures"
    folders[Path(HF_HUB_CACHE)] = "models of the hub"
    for path, what in folders.items():
        yield Cache(what=what, path=path, size=_size(path))


def _size(folder: Path) -> int:
    """Return the bytes of all files below a folder; those that links point to are not counted again."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:  # it has just gone, or may not be looked at
                continue
    return total


def _places(folder: Path) -> list[Path]:
    """Return the folders whose disks fill: the present one, that of caches, that of data; each disk once."""
    disks = {_existing(path).stat().st_dev: path for path in (folder, cache_folder(), Path.cwd())}
    return list(reversed(disks.values()))


def _existing(path: Path) -> Path:
    """Return a folder, or the nearest above it that exists."""
    return next((each for each in (path, *path.absolute().parents) if each.exists()), Path.cwd())
