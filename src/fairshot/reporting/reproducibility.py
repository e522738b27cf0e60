"""The reproducibility page: what we reach with each method, beside what was published, with a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fairshot import markdown
from fairshot.errors import PathUnusable
from fairshot.evaluation.run_folder import LOG
from fairshot.files import write_atomically
from fairshot.reporting.conditions import UNKNOWN, conditions
from fairshot.reporting.export import to_markdown
from fairshot.reporting.groups import Group, by_benchmark, group_results, ranked, spread_text
from fairshot.reporting.measures import HARMONIC_AVG, INC_AVG, LAST, OVERALL, OVERALL_AVG
from fairshot.reporting.names import beyond_paper
from fairshot.reporting.runs import find_runs, read_run
from fairshot.reporting.tables import significance_table
from fairshot.settings import flat
from fairshot.studies.published import PublishedRow
from fairshot.studies.reproducibility import (
    HARMONIC,
    NOT_COMPARABLE,
    OVERALL_AVERAGE,
    REASONS,
    Verdict,
    judge,
    read_reasons,
)

PAGE = "REPRODUCIBILITY.md"
NO_REASON = f"No reason is known yet; write one into `{REASONS}`."
OVERVIEW = (
    *("method", "verdict", "unlike the published row", "overall", "own publication", "paper of SSS"),
    *("harmonic mean", "harmonic, published", "novel", "novel, published", "images"),
)
SECTION = ("", "backbone", "epochs", "session 0", "average", "last", "novel", "harmonic mean")
INTRODUCTION = """
Written{by} from the runs of that folder. Overall accuracy in percent: of session 0,
averaged over all sessions, and of the last one; novel: that of novel classes (Inc), averaged over the
sessions; mean ± standard deviation where there are several seeds; images: through the network in the base
session. Ranked by harmonic mean, after frozen backbones, on which nothing was trained. Always the last
epoch. The verdict compares the overall averages, with the method's own publication where we know its
figures and else with the row that the paper of SSS prints for it; and the harmonic means, as they follow
from the first of these rows that has novel accuracies, since a method may reach its overall accuracy and
yet favour base classes more than was published. **Reached** if neither is missed, **within 1 point** if
each by no more than that, or **not reached**; what is missed is named. **Not comparable** if our backbone
began with weights that were learnt from other pictures than that of the published row, or if we used
unlabelled test images and it did not. What else is unlike the published row stands beside the verdict:
parts of ours, another backbone, nothing trained, no unlabelled test images. Where nothing does, like is
compared with like, but for the budgets. Seconds are what each run recorded: runs that share a device take
longer than one that has it to itself. Of a base session that another run trained, that run is named.
"""


def write_reproducibility(folder: Path, out: Path | None = None, command: str = "") -> Path:
    """Write the page of the runs in a folder; return where it is."""
    found = {path.name: read_run(path).result for path in find_runs([folder])}
    runs = {name: result for name, result in found.items() if result is not None}
    if not runs:
        raise PathUnusable(folder, "holds no finished run; its runs have no result.json yet")
    all_groups = group_results(list(runs.values()))
    names = {name for group in all_groups for name in (group.label, group.results[0].method)}
    reasons = read_reasons(folder, names)
    parts = ["# Reproducibility", INTRODUCTION.format(by=f" by `{command}`" if command else "").strip()]
    for benchmark, compared in by_benchmark(all_groups).items():
        groups = ranked(compared)
        verdicts = [judge(group.results) for group in groups]
        rows = [_overview_row(group, verdict) for group, verdict in zip(groups, verdicts, strict=True)]
        parts += [f"## {benchmark}", _overview(rows)]
        if tested := significance_table(groups, [result for group in groups for result in group.results]):
            parts += [f"### {tested.title}", tested.caption, to_markdown(tested)]
        for group, verdict in zip(groups, verdicts, strict=True):
            folders = [name for name, result in runs.items() if group.holds(result)]
            parts += _section(group, verdict, reasons, folders)
    out = out or folder / PAGE
    write_atomically(out, ("\n\n".join(parts) + "\n").encode())
    return out


def _overview(rows: Sequence[Sequence[str]]) -> str:
    """Return the table of all methods, without the columns of which nothing is known."""
    known = [i for i in range(len(OVERVIEW)) if any(row[i] != UNKNOWN for row in rows)]
    return markdown.table([OVERVIEW[i] for i in known], [[row[i] for i in known] for row in rows])


def _overview_row(group: Group, verdict: Verdict) -> list[str]:
    theirs = [_number(row.average if row else None) for row in (verdict.own, verdict.rerun)]
    shown = (OVERALL_AVG, HARMONIC_AVG, INC_AVG)
    overall, harmonic, novel = (spread_text(group.summary(measure.pick)) for measure in shown)
    known = conditions(group).values
    return [
        group.label,
        _in_words(verdict),
        ", ".join(_unlike(group, verdict)),
        overall,
        *theirs,
        harmonic,
        _number(verdict.published_harmonic),
        novel,
        _number(verdict.published_novel),
        known["images"],
    ]


def _in_words(verdict: Verdict) -> str:
    if verdict.text == NOT_COMPARABLE:
        return f"{NOT_COMPARABLE}: {verdict.obstacle}"
    return f"{verdict.text}: {verdict.missed}" if verdict.missed else verdict.text


def _unlike(group: Group, verdict: Verdict) -> list[str]:
    """Return in what our runs are unlike the published row, with what they have and no paper has."""
    if verdict.row is None:
        return []
    return [*beyond_paper(dict(flat(group.results[0].recipe))), *verdict.differences]


def _section(group: Group, verdict: Verdict, reasons: Mapping[str, str], folders: Sequence[str]) -> list[str]:
    known = conditions(group).values
    seeds = ", ".join(str(result.seed) for result in group.results)
    unlabelled = ", unlabelled test images used" if group.transductive else ""
    label = f"ours, seed{'s' * (len(group.results) > 1)} {seeds}{unlabelled}"
    summaries = [group.summary(measure.pick) for measure in (OVERALL_AVG, LAST, INC_AVG, HARMONIC_AVG)]
    ours = map(spread_text, (group.session(0, OVERALL.pick), *summaries))
    rows = [
        [label, _network(known["backbone"], verdict), known["epochs"], *ours],
        _published_row(verdict, verdict.own, verdict.own.own if verdict.own else "", "own publication"),
        _published_row(verdict, verdict.rerun, verdict.rerun.source if verdict.rerun else "", "paper of SSS"),
    ]
    reason = reasons.get(group.label, reasons.get(group.results[0].method))
    device = " and ".join(sorted({result.environment.device for result in group.results}))
    logs = ", ".join(f"`{name}/{LOG}`" for name in folders)
    return [
        f"### {group.label}",
        markdown.table(SECTION, rows),
        f"**{verdict.text.capitalize()}.**{_explanation(verdict, _unlike(group, verdict), reason)}",
        "\n".join(f"    {result.command}" for result in group.results),
        f"{_sentence(f'{_times(group)}, on {device}')} Logs: {logs}.",
    ]


def _published_row(verdict: Verdict, row: PublishedRow | None, source: str | None, whose: str) -> list[str]:
    if row is None:
        return [f"{whose}: no row known to us", *[""] * (len(SECTION) - 1)]
    unlabelled = ", unlabelled test images used" if row.transductive else ""
    harmonic = row.harmonic_average(verdict.images)
    numbers = (row.overall[0], row.average, row.overall[-1], row.inc_average, harmonic)
    return [f"{source}{unlabelled}", row.network, "", *map(_number, numbers)]


def _network(backbone: str, verdict: Verdict) -> str:
    """Return our backbone, and what it began with, as published rows have it."""
    return f"{backbone} ({verdict.weights.trained_on} weights)" if verdict.weights else backbone


def _explanation(verdict: Verdict, unlike: Sequence[str], reason: str | None) -> str:
    if not verdict.gaps:
        return ""
    against = "its own publication" if verdict.own else "the row in the paper of SSS"
    text = f" {_sentence(verdict.obstacle)}" if verdict.obstacle else ""
    text += f" Unlike the published row: {', '.join(unlike)}." if unlike else ""
    text += f" The average is {_distance(verdict.gaps[OVERALL_AVERAGE])} {against}."
    if HARMONIC in verdict.gaps:
        row = verdict.with_novel
        whose = "its own publication" if row is not None and row.own else "the row in the paper of SSS"
        text += f" The harmonic mean is {_distance(verdict.gaps[HARMONIC])} what follows from {whose}."
    if verdict.novel is not None and verdict.published_novel is not None:
        text += f" Novel classes are {_distance(verdict.novel - verdict.published_novel)} the published row."
    if reason or verdict.text == "not reached":
        text += f" {reason.strip() if reason else NO_REASON}"
    return text


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _distance(lead: float) -> str:
    return f"{abs(lead):.2f} points {'above' if lead >= 0 else 'below'}"


def _times(group: Group) -> str:
    times = [f"{part} {spread_text(spread, 0)} s" for part, spread in group.seconds.items()]
    loaded = [f"base session of {', '.join(group.base_sessions_of)}"] if group.base_sessions_of else []
    return "; ".join([*loaded, *times])


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:.2f}"
