"""`fairshot doctor`: what there is on this machine, and what is missing."""

from __future__ import annotations

from typing import Annotated

import typer

from fairshot.cli.advice import how_to_get
from fairshot.cli.console import say
from fairshot.cli.options import Root


def doctor_command(
    root: Root = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Tell versions, device, data, caches, free disk, and the command for each extra that is missing.

    Its exit code is 1 if a package that fairshot needs is missing or too old.

    Example: fairshot doctor
    """
    from fairshot import benchmarks
    from fairshot.doctor import diagnose

    found = diagnose(root)
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        raise typer.Exit(bool(found.problems))
    device = found.device
    gpus = "; ".join(device.gpus) or "no GPU that torch can use"
    lines = [
        f"fairshot {found.version}, Python {found.python}, {found.platform}",
        f"device: {device.name} ({gpus}), {device.cores} cores, {device.memory / 1e9:.0f} GB memory",
        "packages: " + ", ".join(f"{name} {number}" for name, number in found.packages.items()),
        *(f"PROBLEM: {problem}" for problem in found.problems),
        "",
        f"data, in {found.data_folder}:",
    ]
    for name, path in found.benchmarks.items():
        lines.append(f"  {name}: {path or 'missing; ' + how_to_get(benchmarks.DATASETS[name])}")
    lines += ["", "caches, which can be removed:"]
    lines += [f"  {each.what}: {each.size / 1e6:,.0f} MB, {each.path}" for each in found.caches]
    lines += [f"free disk: {each.free / 1e9:,.1f} GB, for {each.path}" for each in found.disks]
    lines += ["", "extras:"]
    for name, extra in found.extras.items():
        state = f"{', '.join(extra.missing)}; {extra.command}" if extra.missing else "installed"
        lines.append(f"  {name}: {state}")
    say("\n".join(lines))
    raise typer.Exit(bool(found.problems))
