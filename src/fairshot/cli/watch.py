"""`fairshot watch`: a store answers each new picture of a folder, a camera, a stream or a video."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from fairshot import teaching
from fairshot.cli.console import ConsoleReporter, print_message
from fairshot.cli.stores import StoreFolder
from fairshot.errors import ExtraMissing, UserError

if TYPE_CHECKING:
    from fairshot.watching.capture import Prepare, Source
    from fairshot.watching.journal import Journal
    from fairshot.watching.receivers import Receiver, Record

PASSWORD_VARIABLE = "FAIRSHOT_MQTT_PASSWORD"  # noqa: S105 - the name of a variable, no password


SourceName = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A folder into which photos come, the number of a camera, the address of a stream (rtsp://..., "
        "http://...) or a video file.",
    ),
]
Every = Annotated[
    float,
    typer.Option(
        min=0.05, help="Seconds between frames of a camera or video; a file must be unchanged for as long."
    ),
]
Change = Annotated[
    float,
    typer.Option(
        min=0,
        max=1,
        help="Share of a frame that must have changed since the last answer; 0: ask about every frame.",
    ),
]
Once = Annotated[bool, typer.Option("--once", help="With a folder: answer what is there, and end.")]
Move = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Move each answered file to FOLDER/<class>/.")
]
Tag = Annotated[
    bool, typer.Option("--tag", help="Write the class as a keyword beside each file, to FILE.xmp.")
]
WebhookUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="Post each answer as JSON to this address.")
]
MqttUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Publish each answer to the broker mqtt://USER@HOST:PORT/TOPIC, for Home Assistant to find; "
        f"its password may be in the variable {PASSWORD_VARIABLE}.",
    ),
]
DeviceName = Annotated[
    str | None, typer.Option(help="Name of the device in MQTT; that of the store if not given.")
]
JournalFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Where it is kept what was answered; in the platform's folder of state if not given.",
    ),
]


def watch_command(
    store: StoreFolder,
    source: SourceName,
    every: Every = 1.0,
    change: Change = 0.01,
    once: Once = False,
    move: Move = None,
    tag: Tag = False,
    webhook: WebhookUrl = None,
    mqtt: MqttUrl = None,
    name: DeviceName = None,
    journal: JournalFile = None,
) -> None:
    """Answer each new picture of a folder, a camera, a stream or a video, as lines of JSON.

    A file is answered once, when nobody writes it any more; of a camera or video, frames that have changed.
    What could not be sent waits, also for the next time; Ctrl-C ends it.

    Example: fairshot watch my-store inbox
    """
    from fairshot.watching.journal import Journal, default_path
    from fairshot.watching.watch import preparation, watch

    reporter, stop = ConsoleReporter(), Event()
    with ExitStack() as opened:
        opened_store = opened.enter_context(teaching.Store(store))
        kept = opened.enter_context(Journal(journal or default_path(store, _kept_as(source))))
        chosen = _source(source, kept, preparation(opened_store), every, change, once, move, reporter)
        if (move or tag) and not Path(source).is_dir():
            raise UserError("--move and --tag are for the files of a folder")
        if move and Path(source).resolve().is_relative_to(move.resolve()):
            raise UserError(f"files moved to {move} would come into {source} again; give another --move")
        receivers = _receivers(kept, move, tag, webhook, mqtt, name or store.resolve().name, reporter)
        for number in (signal.SIGINT, signal.SIGTERM):
            opened.callback(signal.signal, number, signal.signal(number, lambda *_: stop.set()))
        print_message(f"watching {chosen.name}; Ctrl-C ends it")
        try:
            watch(opened_store, chosen, kept, receivers, _print_line, stop, reporter)
        except BrokenPipeError:  # nobody reads the answers any more: `fairshot watch ... | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if waiting := kept.count_waiting():
            print_message(f"{waiting:,} messages could not be sent yet, and wait for the next time")
    print_message("stopped" if stop.is_set() else "that was all")


def _kept_as(source: str) -> str:
    """Return a source so that it is the same from every folder."""
    return str(Path(source).resolve()) if Path(source).exists() else source


def _source(
    source: str,
    journal: Journal,
    prepare: Prepare,
    every: float,
    change: float,
    once: bool,
    move: Path | None,
    reporter: ConsoleReporter,
) -> Source:
    """Open what is to be watched."""
    from fairshot.watching.errors import NoSource
    from fairshot.watching.folder import FolderSource

    path = Path(source)
    if path.is_dir():
        without = [] if move is None else [move]
        return FolderSource(path, journal, every, once, prepare, without, reporter)
    try:
        from fairshot.watching.video import LiveVideo, VideoFile
    except ImportError:
        raise ExtraMissing("a camera or a video", "watch") from None
    if path.is_file():
        return VideoFile(path, every, change, prepare)
    if source.isdecimal() or "://" in source:
        return LiveVideo(int(source) if source.isdecimal() else source, every, change, prepare, reporter)
    raise NoSource(source)


def _receivers(
    journal: Journal,
    move: Path | None,
    tag: bool,
    webhook: str | None,
    mqtt: str | None,
    name: str,
    reporter: ConsoleReporter,
) -> list[Receiver]:
    """Return who is told the answers."""
    receivers: list[Receiver] = []
    if move is not None or tag:
        from fairshot.watching.file_actions import FileActions

        receivers.append(FileActions(journal, move, tag))
    if webhook is not None:
        from fairshot.watching.webhook import Webhook

        receivers.append(Webhook(webhook))
    if mqtt is not None:
        try:
            from fairshot.watching.mqtt import Mqtt
        except ImportError:
            raise ExtraMissing("MQTT", "watch") from None
        receivers.append(Mqtt(mqtt, name, os.environ.get(PASSWORD_VARIABLE), reporter))
    return receivers


def _print_line(record: Record) -> None:
    print(json.dumps(record, ensure_ascii=False), flush=True)
