"""Change a store in child processes that are killed at random moments, and look at what is left each time.

Run as a program: `kill_loop.py FOLDER TIMES SEED`. Everything is imported and embedded once, before forking,
so that many kills fit into seconds and most of them hit a transaction. Prints a JSON object.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import sys
import time
from pathlib import Path

import torch

from fairshot.errors import UserError
from fairshot.teaching import Store
from fairshot.teaching.database import DATABASE
from fairshot.teaching.network import Network, Photo
from support.stores import drawings, make_store, network

WORDS = tuple(f"class {letter}" for letter in "abcdefgh")
EMBEDDER = network()  # of every store here: building it anew takes longer than all the rest
Network.read = lambda path: EMBEDDER  # type: ignore[method-assign, assignment, misc]


def change_for_ever(folder: Path, photos: dict[str, list[Photo]], seed: int, done: int) -> None:
    """Change a store in all ways until killed; write a byte to `done` after each change."""
    chance = random.Random(seed)
    with Store(folder) as store:
        while True:
            changes = [store.forget, store.rename, store.merge, store.undo, store.drop, store.move]
            verb = chance.choice([store.teach] * 5 + changes)
            name, other = chance.sample(WORDS, 2)
            some = [row_of(store, photo) for photo in photos[chance.choice(WORDS)]]
            arguments = {
                store.teach: (name, photos[name]),
                store.forget: (name,),
                store.undo: (),
                store.drop: (name, some),
                store.move: (name, some, other),
            }.get(verb, (name, other))
            try:
                verb(*arguments)
            except UserError:  # no such class, a photo of another class, nothing to undo
                continue
            os.write(done, b".")


def row_of(store: Store, photo: Photo) -> int:
    """Return the id of a photo; 0 if it was never stored."""
    row = store._reader.execute("SELECT id FROM images WHERE sha256 = ?", (photo.sha256,)).fetchone()
    return 0 if row is None else row[0]


def die_at_statement(folder: Path, photos: dict[str, list[Photo]], number: int) -> None:
    """Teach a class, but die before the statement of that number; leave with 0 if there are fewer."""
    with Store(folder) as store:
        left = number

        def count(statement: str) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

        store._writer.set_trace_callback(count)
        store.teach(WORDS[0], photos[WORDS[0]])
        os._exit(0)


def examine(folder: Path, photos: dict[str, list[Photo]], queries: list) -> tuple[str, list]:
    """Reopen a store and check it against what it recorded; return its digest and some answers."""
    with sqlite3.connect(folder / DATABASE) as connection:
        named = "SELECT sha256, name FROM images JOIN classes ON classes.id = class WHERE name IS NOT NULL"
        owners = dict(connection.execute(named))
    connection.close()
    knowledge: dict[str, list[Photo]] = {}
    for word, three in photos.items():
        found = {owners.get(photo.sha256) for photo in three}
        if len(found) != 1:
            raise SystemExit(f"a part of {word} is in the store: {found}")
        if (owner := found.pop()) is not None:
            knowledge.setdefault(owner, []).extend(three)
    with Store(folder) as store, make_store(folder.with_name(f"fresh {time.monotonic_ns()}")) as fresh:
        for name, known in knowledge.items():
            fresh.teach(name, known)
        if fresh.digest() != store.digest():
            raise SystemExit("what the store derived does not follow from what it recorded")
        return store.digest(), store.predict(queries)


def kill_at_random(
    folder: Path, photos: dict[str, list[Photo]], queries: list, times: int, seed: int
) -> list[int]:
    """Kill changes at random moments; return how many events the store holds after each."""
    moments = random.Random(seed)
    events = []
    for attempt in range(times):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            change_for_ever(folder, photos, 1000 * seed + attempt, writing)
        for _ in range(moments.randrange(3)):  # however busy the machine is, some changes are made
            os.read(reading, 1)
        time.sleep(moments.random() * 0.08)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)
        found = examine(folder, photos, queries)
        with Store(folder) as store:
            if (store.digest(), store.predict(queries)) != found:
                raise SystemExit("two openings of one store differ")
            events.append(len(store.history()))
    return events


def undo_everything(folder: Path) -> None:
    with Store(folder) as store:
        standing = [
            event for event in store.history() if not event.undone and event.kind not in ("new", "undo")
        ]
        for _ in standing:
            store.undo()


def kill_at_every_statement(folder: Path, photos: dict[str, list[Photo]], queries: list) -> int:
    """Kill a teaching before its first statement, its second and so on; return how many it has."""
    with Store(folder) as store:
        before = store.digest()
    statement = 0
    while True:
        statement += 1
        child = os.fork()
        if child == 0:
            die_at_statement(folder, photos, statement)
        _, status = os.waitpid(child, 0)
        if status == 0:
            break
        with Store(folder) as store:  # a digest as before is that of a store that was examined
            if store.digest() != before:
                raise SystemExit(f"killed before statement {statement}, something of the class stayed")
    if examine(folder, photos, queries)[0] == before:
        raise SystemExit("a teaching that was not interrupted left nothing")
    return statement - 1


def main(folder: Path, times: int, seed: int) -> None:
    torch.set_num_threads(1)  # threads do not survive a fork
    with make_store(folder) as store:
        photos = {word: store.embed(drawings(word, 3)) for word in WORDS}
    queries = drawings("query", 4)
    events = kill_at_random(folder, photos, queries, times, seed)
    undo_everything(folder)
    statements = kill_at_every_statement(folder, photos, queries)
    print(json.dumps({"kills": times, "events": events, "statements": statements}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
