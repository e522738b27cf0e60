"""The reproducibility page: what we reach with each method, beside what was published, with a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairshot.errors import UserError
from fairshot.files import write_atomically
from fairshot.reporting.conditions import conditions
from fairshot.reporting.groups import Group, Spread, by_benchmark, group_results
from fairshot.reporting.measures import INC_AVG, LAST, OVERALL, OVERALL_AVG
from fairshot.reporting.runs import find_runs, read_run
from fairshot.studies.published import PublishedRow
from fairshot.studies.reproducibility import REASONS, Verdict, judge, read_reasons

PAGE = "REPRODUCIBILITY.md"
NO_REASON = f"No reason is known yet; write one into `{REASONS}`."
INTRODUCTION = """
Written by `{command}` from the runs of that folder. Overall accuracy in percent: of session 0,
averaged over all sessions, and of the last one; novel: that of novel classes (Inc), averaged over the
sessions; mean ± standard deviation where there are several seeds. Always the last epoch. The verdict compares
the overall averages, with the method's own publication where we know its figures and else with the row that
the paper of SSS prints for it: **reached**, **within 1 point**, or **not reached**. A method may reach its
overall accuracy and yet favour base classes more than was published: hence the novel columns. Backbones and
budgets differ between the rows; they are named. Seconds are what each run recorded: runs that share a device
take longer than one that has it to itself.
"""


@dataclass(frozen=True)
class Comparison:
    """One method: our runs, what was published, and why it is not reached."""

    group: Group
    verdict: Verdict
    reason: str | None

    @property
    def average(self) -> Spread | None:
        """Our average overall accuracy."""
        return self.group.summary(OVERALL_AVG.pick)

    @property
    def novel(self) -> Spread | None:
        """Our accuracy of novel classes."""
        return self.group.summary(INC_AVG.pick)


def write_reproducibility(folder: Path, out: Path | None = None, command: str = "") -> Path:
    """Write the page of the runs in a folder; return where it is."""
    found = {path.name: read_run(path).result for path in find_runs([folder])}
    runs = {name: result for name, result in found.items() if result is not None}
    results = list(runs.values())
    if not results:
        raise UserError(f"{folder} holds no finished run; its runs have no result.json yet")
    all_groups = group_results(results)
    names = {name for group in all_groups for name in (group.label, group.results[0].method)}
    reasons = read_reasons(folder, names)
    lines = ["# Reproducibility", INTRODUCTION.format(command=command or "fairshot reproducibility")]
    for benchmark, groups in by_benchmark(all_groups).items():
        comparisons = [_comparison(group, reasons) for group in groups]
        lines += [f"## {benchmark}\n", *_overview(comparisons), ""]
        for comparison in comparisons:
            folders = [name for name, result in runs.items() if comparison.group.holds(result)]
            lines += [*_section(comparison, folders), ""]
    out = out or folder / PAGE
    write_atomically(out, "\n".join(lines).encode())
    return out


def _comparison(group: Group, reasons: Mapping[str, str]) -> Comparison:
    reason = reasons.get(group.label, reasons.get(group.results[0].method))
    return Comparison(group, judge(group.results), reason)


def _overview(comparisons: Sequence[Comparison]) -> Iterator[str]:
    yield from _head(
        "method",
        "verdict",
        "ours",
        "own publication",
        "paper of SSS",
        "difference",
        "novel",
        "novel, published",
    )
    for comparison in comparisons:
        verdict = comparison.verdict
        theirs = [_number(row.average if row else None) for row in (verdict.own, verdict.rerun)]
        gap = "" if verdict.gap is None else f"{verdict.gap:+.2f}"
        name, ours = f"`{comparison.group.label}`", _spread(comparison.average)
        novel = _spread(comparison.novel), _number(verdict.published_novel)
        yield _line(name, verdict.text, ours, *theirs, gap, *novel)


def _section(comparison: Comparison, folders: Sequence[str]) -> Iterator[str]:
    group, verdict = comparison.group, comparison.verdict
    (known,) = conditions([group])
    seeds = ", ".join(str(result.seed) for result in group.results)
    yield f"### {group.label}\n"
    yield from _head("", "backbone", "epochs", "session 0", "average", "last", "novel")
    ours = (group.session(0, OVERALL.pick), comparison.average, group.summary(LAST.pick), comparison.novel)
    unlabelled = ", unlabelled test images used" if group.results[0].transductive else ""
    label = f"ours, seed{'s' * (len(group.results) > 1)} {seeds}{unlabelled}"
    yield _line(label, known.backbone, known.epochs, *map(_spread, ours))
    yield _published_line(verdict.own, verdict.own.own if verdict.own else "", "own publication")
    yield _published_line(verdict.rerun, verdict.rerun.source if verdict.rerun else "", "paper of SSS")
    yield f"\n**{verdict.text.capitalize()}.**" + _explanation(comparison) + "\n"
    yield "\n".join(f"    {result.command}" for result in group.results) + "\n"
    device = " and ".join(sorted({result.environment.device for result in group.results}))
    yield f"{_times(group)}, on {device}. Logs: {', '.join(f'`{name}/log.txt`' for name in folders)}."


def _published_line(row: PublishedRow | None, source: str | None, whose: str) -> str:
    if row is None:
        return _line(f"{whose}: no row known to us", "", "", "", "", "", "")
    unlabelled = ", unlabelled test images used" if row.transductive else ""
    numbers = (row.overall[0], row.average, row.overall[-1], row.inc_average)
    return _line(f"{source}{unlabelled}", row.backbone, "", *map(_number, numbers))


def _explanation(comparison: Comparison) -> str:
    verdict = comparison.verdict
    if verdict.gap is None:
        return ""
    against = "its own publication" if verdict.own else "the row in the paper of SSS"
    side = "above" if verdict.gap >= 0 else "below"
    said = f" The average is {abs(verdict.gap):.2f} points {side} {against}."
    if verdict.novel is not None and verdict.published_novel is not None:
        lead = verdict.novel - verdict.published_novel
        side = "above" if lead >= 0 else "below"
        said += f" Novel classes are {abs(lead):.2f} points {side} the published row."
    if comparison.reason or verdict.text == "not reached":
        said += f" {comparison.reason.strip() if comparison.reason else NO_REASON}"
    return said


def _times(group: Group) -> str:
    parts = dict.fromkeys(name for result in group.results for name in result.seconds)
    spreads = {name: Spread.of([result.seconds.get(name) for result in group.results]) for name in parts}
    return "; ".join(f"{name} {_spread(spread, 0)} s" for name, spread in spreads.items()).capitalize()


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:.2f}"


def _spread(spread: Spread | None, digits: int = 2) -> str:
    if spread is None:
        return ""
    deviation = "" if spread.deviation is None else f" ± {spread.deviation:.{digits}f}"
    return f"{spread.mean:.{digits}f}{deviation}"


def _head(*titles: str) -> tuple[str, str]:
    return _line(*titles), _line(*("---" for _ in titles))


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
