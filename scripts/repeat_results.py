"""Run the commands that made results, several at a time; the same call goes on where it was stopped.

    python scripts/repeat_results.py results/cifar100/commands.txt runs/cifar100 --jobs 4
    python scripts/repeat_results.py results/cub200/planned.txt runs/cub200 --only '*-seed0' --only '*-seed1'

A line of the file is a command of fairshot whose `--out` is a folder in the destination. One that names the
folder of another line, or whose own folder holds it, begins when that line has ended well. `tradeoff` has no
`--out`: it begins when the lines before it that made its runs, or drew other curves of them, have. At most
`--jobs` trainings run at once; on a GPU they share it through MPS where that is installed. Commands with
`--base` do not train: as many of them run beside the trainings. `--only` leaves out lines whose folders have
another name, unless a line that is run names or holds them.
"""

import argparse
import shlex
import subprocess
import sys
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from fairshot.studies.gpu_sharing import shared_gpu

FINISHED = ("result.json", "ablation.md")  # one of them is left by a command that has ended well
DRAWS = "tradeoff"  # the command that writes into the folders of runs


@dataclass(frozen=True)
class Command:
    """A line of the file."""

    words: tuple[str, ...]
    out: str  # its folder, or what stands for it
    needs: frozenset[str]  # those of other lines

    @property
    def trains(self) -> bool:
        return "--base" not in self.words

    def finished(self, destination: Path) -> bool:
        return any((destination / self.out / name).is_file() for name in FINISHED)

    def run(self, destination: Path) -> int:
        """Run it in the destination, its output beside its folder; return its exit code."""
        log = destination / f"{self.out}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as file:
            run = [sys.executable, "-m", *self.words]
            return subprocess.run(  # noqa: S603 - this Python, with what the user's own file says
                run, cwd=destination, stdout=file, stderr=file, check=False
            ).returncode


def read(path: Path) -> list[Command]:
    """Read the commands of a file; empty lines and those that begin with # are comments."""
    lines = [line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    words = [tuple(shlex.split(line)) for line in lines if line]
    if wrong := [each for each in words if each[0] != "fairshot" or _out(each) is None]:
        sys.exit(f"{path}: {shlex.join(wrong[0])!r}: expected a command of fairshot with --out FOLDER")
    outs = [_out(each) or "" for each in words]
    return [Command(each, outs[line], _needs(each, line, outs)) for line, each in enumerate(words)]


def _out(words: tuple[str, ...]) -> str | None:
    """Return the folder of a command; of one that draws curves, its runs and options."""
    if words[1:2] == (DRAWS,):
        return "-".join(word.strip("-") for word in (*words[2:], DRAWS))
    return words[words.index("--out") + 1] if "--out" in words[:-1] else None


def _needs(words: tuple[str, ...], line: int, outs: list[str]) -> frozenset[str]:
    """Return the folders of other lines that a command names, and those that lie in its own.

    Curves of the same runs are drawn one after the other, for they share trainings.
    """
    out = outs[line]
    needed = {*words, *(each for each in outs if each.startswith(f"{out}/"))}
    if words[1] == DRAWS:
        needed |= {each for each in outs[:line] if each.startswith(words[2]) and each.endswith(f"-{DRAWS}")}
    return frozenset(needed & set(outs) - {out})


def chosen(commands: list[Command], patterns: list[str]) -> list[Command]:
    """Return the commands whose folders are called like one of the patterns, and those that they need."""
    wanted = {each.out for each in commands if any(fnmatchcase(each.out, one) for one in patterns)}
    while further := {need for each in commands if each.out in wanted for need in each.needs} - wanted:
        wanted |= further
    return [each for each in commands if each.out in wanted]


def run_all(commands: list[Command], destination: Path, jobs: int) -> list[str]:
    """Run what is not finished; return the folders of those that failed or whose other line did."""
    left = [each for each in commands if not each.finished(destination)]
    ended = {each.out for each in commands} - {each.out for each in left}
    failed: list[str] = []
    running: dict[Future[int], Command] = {}
    with ThreadPoolExecutor(jobs) as training, ThreadPoolExecutor(jobs) as deciding:
        while left or running:
            for each in [one for one in left if one.needs <= ended]:
                left.remove(each)
                running[(training if each.trains else deciding).submit(each.run, destination)] = each
            if not running:  # what is left waits for what failed
                return failed + [each.out for each in left]
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                each, code = running.pop(future), future.result()
                (failed.append if code else ended.add)(each.out)
                print(f"{each.out}: {f'failed, see {each.out}.log' if code else 'done'}", flush=True)
    return failed


def main() -> None:
    """Run the commands of a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("commands", type=Path)
    parser.add_argument("destination", type=Path)
    parser.add_argument("--jobs", type=int, default=1, help="trainings at once")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="folders, as 'sss-*'")
    given = parser.parse_args()
    commands = chosen(read(given.commands), given.only or ["*"])
    if not commands:
        sys.exit(f"{given.commands}: no --out is called like {' or '.join(given.only)}")
    with shared_gpu():
        failed = run_all(commands, given.destination, given.jobs)
    if failed:
        sys.exit(f"not finished: {', '.join(failed)}")


if __name__ == "__main__":
    main()
