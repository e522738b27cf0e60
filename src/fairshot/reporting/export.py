"""Tables as LaTeX for a paper, as Markdown for a page and as CSV for a spreadsheet."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

from fairshot import markdown
from fairshot.files import write_atomically
from fairshot.reporting.groups import Spread, spread_text
from fairshot.reporting.names import PARTS
from fairshot.reporting.table import Row, Table

_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


def write_table(table: Table, folder: Path, prefix: str = "") -> list[Path]:
    """Write the table as LaTeX, Markdown and CSV into the folder."""
    texts = {"tex": to_latex(table), "md": to_markdown(table) + "\n", "csv": to_csv(table)}
    paths = {folder / f"{prefix}{table.key}.{suffix}": text for suffix, text in texts.items()}
    for path, text in paths.items():
        write_atomically(path, text.encode())
    return list(paths)


def to_csv(table: Table) -> str:
    """Return every number in full, its deviation beside it, and where a row comes from."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    titles = [f"{column.band}: {column.title}" if column.band else column.title for column in table.columns]
    head = [cell for title in titles for cell in (title, f"{title} deviation")]
    writer.writerow(["row", *(PARTS[part][0] for part in table.parts), *head, "seeds", "source", "remarks"])
    for row in table.rows:
        ticks = [int(part in row.parts) for part in table.parts]
        numbers = [cell for value in row.values for cell in _csv_cells(value)]
        seeds = row.seeds if row.ours else ""
        writer.writerow(
            [row.name, *ticks, *numbers, seeds, row.source or "this report", "; ".join(row.remarks)]
        )
    return text.getvalue()


def _csv_cells(value: Spread | None) -> tuple[str, str]:
    if value is None:
        return "", ""
    return repr(value.mean), "" if value.deviation is None else repr(value.deviation)


def to_markdown(table: Table) -> str:
    """Return a Markdown table with two decimals: best values bold, remarks in brackets."""
    rows = []
    for index, row in enumerate(table.rows):
        label = f"{row.name} ({'; '.join(row.remarks)})" if row.remarks else row.name
        ticks = ["x" if part in row.parts else "" for part in table.parts]
        bold = ["**" if index in winners else "" for winners in table.winners]
        numbers = [
            spread_text(value, column.digits, "-", mark)
            for column, value, mark in zip(table.columns, row.values, bold, strict=True)
        ]
        rows.append([label, *ticks, *numbers])
    titles = [PARTS[part][0] for part in table.parts] + table.column_titles
    return markdown.table(["", *titles], rows)


def to_latex(table: Table) -> str:
    """Return a table for the booktabs package: best values bold, remarks as letters explained below."""
    lines = [
        "% needs \\usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape(f'{table.title}. {table.caption}')}}}",
        rf"\label{{tab:{table.key}}}",
        rf"\begin{{tabular}}{{l{'c' * len(table.parts)}{'r' * len(table.columns)}}}",
        r"\toprule",
    ]
    skipped = " & " * len(table.parts)
    if any(band for band, _ in table.bands):
        spans = [rf"\multicolumn{{{span}}}{{c}}{{{escape(band)}}}" for band, span in table.bands]
        lines.append(f"{skipped} & {' & '.join(spans)} \\\\")
    titles = [escape(PARTS[part][0]) for part in table.parts] + [escape(c.title) for c in table.columns]
    lines += [f"Method & {' & '.join(titles)} \\\\", r"\midrule"]
    for index, row in enumerate(table.rows):
        if index and row.ours and not table.rows[index - 1].ours and not table.parts:
            lines.append(r"\midrule")
        lines.append(_latex_row(table, index, row))
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += _latex_notes(table)
    return "\n".join([*lines, r"\end{table}", ""])


def _latex_row(table: Table, index: int, row: Row) -> str:
    letters = ",".join(table.remarks[remark] for remark in row.remarks)
    label = escape(row.name) + (rf"\textsuperscript{{{letters}}}" if letters else "")
    ticks = [r"$\surd$" if part in row.parts else "" for part in table.parts]
    numbers = [
        _latex_cell(value, index in winners, column.digits)
        for value, winners, column in zip(row.values, table.winners, table.columns, strict=True)
    ]
    return f"{' & '.join([label, *ticks, *numbers])} \\\\"


def _latex_cell(value: Spread | None, is_best: bool, digits: int) -> str:
    if value is None:
        return "--"
    mean = f"{value.mean:.{digits}f}" if math.isfinite(value.mean) else r"$\infty$"
    mean = rf"\textbf{{{mean}}}" if is_best else mean
    return mean if value.deviation is None else rf"{mean} {{\scriptsize $\pm${value.deviation:.{digits}f}}}"


def _latex_notes(table: Table) -> list[str]:
    notes = [rf"\textsuperscript{{{letter}}} {escape(text)}" for text, letter in table.remarks.items()]
    sources = dict.fromkeys(row.source for row in table.rows if not row.ours)
    if sources:
        notes.append(f"Published rows: {escape('; '.join(sources))}")
    seeds = {row.seeds for row in table.rows if row.ours and row.seeds > 1}
    if seeds:
        notes.append(rf"$\pm$ is the sample deviation over {' or '.join(map(str, sorted(seeds)))} seeds")
    return [rf"\par\smallskip\footnotesize {'; '.join(notes)}."] if notes else []


def escape(text: str) -> str:
    """Return plain text with all that LaTeX would read as a command escaped."""
    return "".join(_LATEX.get(sign, sign) for sign in text)
