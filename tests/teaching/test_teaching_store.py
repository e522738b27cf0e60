"""A store: one state for one knowledge, whatever the order, and every event undoable."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairshot.errors import BadInput, PathUnusable, UserError
from fairshot.teaching import Store, database, errors
from fairshot.teaching.base_classifier import read_classifier
from fairshot.teaching.database import DATABASE
from fairshot.teaching.names import checked_name
from fairshot.teaching.network import write_tensors
from fairshot.teaching.photos import fingerprint
from fairshot.teaching.snapshot import ClassRow
from support.stores import drawings, make_store, network, store_spec

NAMES = ("okapi", "yak", "emu")
PHOTOS = {name: drawings(name, 3) for name in NAMES}


GATES = {
    "no gate": {},
    "whitened left out": {"whitening": True, "gate": "left_out", "gate_strength": 0.6},
    "class covariance": {
        **{"whitening": True, "class_covariance_share": 0.3},
        **{"gate": "unbiased", "gate_strength": 1.0},
    },
}
gates = pytest.mark.parametrize("gate", GATES.values(), ids=GATES)


def same(one: Store, other: Store) -> bool:
    """Whether two stores decide by the same tensors, to the bit."""
    mine, theirs = one.snapshot().classifier.tensors(), other.snapshot().classifier.tensors()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path / "store")


def ids(store: Store, name: str) -> list[int]:
    """The photos taught to a class."""
    return [photo.id for photo in store.photos(name) if photo.taught]


@gates
def test_same_photos_in_another_order_or_twice_give_the_same_state(tmp_path: Path, gate: dict) -> None:
    store, other = (make_store(tmp_path / name, **gate) for name in ("store", "other"))
    for name in NAMES:
        store.teach(name, PHOTOS[name])
    for name in reversed(NAMES):
        other.teach(name, PHOTOS[name][:0:-1])
        other.teach(name, PHOTOS[name] + PHOTOS[name][:1])
    assert other.digest() == store.digest()
    assert same(store, other)
    assert other.teach("yak", PHOTOS["yak"]).photos == 0
    assert len(other.history()) == 1 + 2 * len(NAMES)  # what taught nothing is no event


@gates
def test_undo_leads_back_through_every_state(tmp_path: Path, gate: dict) -> None:
    store = make_store(tmp_path / "store", **gate)
    steps = [
        lambda: store.teach("okapi", PHOTOS["okapi"]),
        lambda: store.teach("yak", PHOTOS["yak"]),
        lambda: store.teach("ant", PHOTOS["emu"]),  # more photos of a base class
        lambda: store.rename("okapi", "giraffe"),
        lambda: store.merge("yak", "bee"),
        lambda: store.merge("cow", "giraffe"),  # the base class lives on in the taught one
        lambda: store.forget("ant"),
        lambda: store.teach("ant", PHOTOS["emu"]),  # a class of its own now
        lambda: store.move("ant", ids(store, "ant")[:1], "giraffe"),
        lambda: store.move("ant", ids(store, "ant")[:1], "emu"),  # a new class
        lambda: store.drop("giraffe", ids(store, "giraffe")[:2]),
        lambda: store.move("ant", ids(store, "ant"), "bee"),  # the class goes with its last photo
        lambda: store.drop("emu", ids(store, "emu")),
    ]
    states, shown = [store.digest()], drawings("query", 3)
    for step in steps:
        step()
        states.append(store.digest())
        assert store.predict(shown) == Store(store.folder).predict(shown)
    assert len(set(states)) == len(states)
    for expected in reversed(states[:-1]):
        store.undo()
        assert store.digest() == expected
    with pytest.raises(errors.NothingToUndo):
        store.undo()


operations = st.lists(
    st.one_of(
        st.tuples(st.just("teach"), st.sampled_from(NAMES), st.sets(st.integers(0, 2), min_size=1)),
        st.tuples(st.just("forget"), st.sampled_from(NAMES)),
        st.tuples(st.just("rename"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
        st.tuples(st.just("merge"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
        st.tuples(st.just("drop"), st.sampled_from(NAMES), st.integers(0, 2)),
        st.tuples(st.just("move"), st.sampled_from(NAMES), st.integers(0, 2), st.sampled_from(NAMES)),
        st.tuples(st.just("undo")),
    ),
    max_size=8,
)


def stored_id(store: Store, photo: np.ndarray) -> int:
    """The id of a photo, by its fingerprint."""
    (picture,) = store.read([photo]).pictures
    query = "SELECT id FROM images WHERE sha256 = ?"
    return store._reader.execute(query, (fingerprint(picture),)).fetchone()[0]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations)
def test_state_depends_on_knowledge_alone(tmp_path_factory: pytest.TempPathFactory, todo: list) -> None:
    """Any way to some knowledge ends in the state of a store that was taught just that."""
    store = make_store(tmp_path_factory.mktemp("any") / "store")
    knowledge: list[dict[str, frozenset]] = [{}]  # after each event that stands
    for verb, *arguments in todo:
        now = dict(knowledge[-1])
        try:
            if verb == "teach":
                name, photos = arguments
                taught = frozenset((name, index) for index in photos)
                report = store.teach(name, [PHOTOS[name][index] for index in sorted(photos)])
                now[name] = now.get(name, frozenset()) | taught
                if not report.photos:
                    continue
            elif verb == "forget":
                store.forget(*arguments)
                now.pop(arguments[0])
            elif verb == "rename":
                store.rename(*arguments)
                now[arguments[1]] = now.pop(arguments[0])
            elif verb == "merge":
                store.merge(*arguments)
                now[arguments[1]] |= now.pop(arguments[0])
            elif verb in ("drop", "move"):
                name, index, *into = arguments
                photo = sorted(now.get(name, ()))[index : index + 1]
                chosen = [stored_id(store, PHOTOS[word][number]) for word, number in photo]
                getattr(store, verb)(name, chosen, *into)
                now[name] = now[name].difference(photo)
                if into:
                    now[into[0]] = now.get(into[0], frozenset()).union(photo)
                now = {each: photos for each, photos in now.items() if photos}
            else:
                store.undo()
                knowledge.pop()
                continue
        except UserError:  # no such class, a photo of another class, nothing to undo
            continue
        knowledge.append(now)
    fresh = make_store(tmp_path_factory.mktemp("fresh") / "store")
    for name, photos in knowledge[-1].items():
        fresh.teach(name, [PHOTOS[word][index] for word, index in photos])
    assert store.digest() == fresh.digest()
    assert same(store, fresh)


def test_reopened_store_answers_the_same_to_the_last_bit(store: Store) -> None:
    for name in NAMES:
        store.teach(name, PHOTOS[name])
    store.merge("emu", "ant")
    grown, read = store.snapshot(), Store(store.folder).snapshot()
    assert read.rows == grown.rows
    assert same(store, Store(store.folder))
    assert Store(store.folder).predict(PHOTOS["yak"]) == store.predict(PHOTOS["yak"])


def test_equally_similar_classes_stand_in_their_order(store: Store) -> None:
    snapshot = store.snapshot()
    snapshot = replace(snapshot, rows=tuple(ClassRow(index, f"{index}") for index in range(90)))
    cosines = torch.full((90,), 0.5)
    cosines[[40, 70]] = 0.9
    names, values = zip(*snapshot.most_similar(cosines, 4), strict=True)
    assert names == ("40", "70", "0", "1")
    assert values == pytest.approx((0.9, 0.9, 0.5, 0.5))
    assert len(snapshot.most_similar(cosines, 1000)) == 90


def test_single_photos_are_listed_moved_and_dropped(store: Store) -> None:
    store.teach("okapi", PHOTOS["okapi"])
    store.teach("ant", PHOTOS["yak"])
    listed = store.photos("ant")
    assert [photo.taught for photo in listed] == [True] * 3 + [False] * 4  # its training images follow
    assert [photo.thumbnail for photo in listed] == store.thumbnails("ant", 10)
    assert store.photos("ant", 2, 1) == listed[1:3]
    assert store.photos("nobody") == []
    store.move("ant", ids(store, "ant")[:2], "okapi")
    store.drop("okapi", ids(store, "okapi")[:1])
    assert {info.name: info.photos for info in store.classes()} == {"ant": 1, "bee": 0, "cow": 0, "okapi": 4}
    assert [event.sentence() for event in store.history(2)] == [
        "drop 1 photo of okapi",
        "move 2 photos of ant to okapi",
    ]
    stored = {photo.thumbnail for name in ("ant", "okapi") for photo in store.photos(name)}
    dropped = [each for each in store.embed(PHOTOS["okapi"] + PHOTOS["yak"]) if each.thumbnail not in stored]
    assert len(dropped) == 1
    assert store.teach("bee", dropped).photos == 1  # what was dropped may be taught elsewhere


def test_report_tells_what_the_class_did(store: Store) -> None:
    store.teach("yak", PHOTOS["yak"])
    twin = [np.clip(photo.astype(int) + 3, 0, 255).astype(np.uint8) for photo in PHOTOS["yak"]]
    before = store.digest()
    report = store.teach("auk", twin, dry_run=True)
    assert store.digest() == before
    assert len(store.history()) == 2
    assert report.closest[0][0] == "yak"
    assert report.closest[0][1] > 0.99
    kept = store.teach("auk", twin, warn_share=0.1)
    assert (kept.closest, kept.reassigned, kept.photos) == (report.closest, report.reassigned, 3)
    answers = [prediction.answer for prediction in store.predict(PHOTOS["yak"])]
    reassigned = {each.name: each for each in kept.reassigned}
    assert reassigned["yak"].count == answers.count("auk")
    assert reassigned["yak"].of == 3
    assert kept.stored == 4 * 3 + 3
    assert kept.sentence().startswith("auk: 3 photos, closest to yak (1.00); 1 of 15 images ")
    assert [line for line in kept.warnings if "from yak" in line] if reassigned["yak"].count > 2 else True


def test_photos_of_another_class_taught_to_a_known_one_are_warned_of(store: Store) -> None:
    """Also to a class that keeps all other images where they are, because it has many of its own."""
    for name in ("yak", "emu"):
        store.teach(name, drawings(name, 6))
    more = drawings("yak", 9)[6:]
    right = store.teach("yak", more, dry_run=True)
    assert right.mistaken == ()
    wrong = store.teach("emu", more, dry_run=True)
    assert wrong.mistaken == (("yak", 3),)
    assert any("3 of the 3 photos were answered yak before" in line for line in wrong.warnings)
    assert store.teach("gnu", more, dry_run=True).mistaken == ()  # a new class was nobody's answer


def test_store_without_base_classes_is_nearest_mean(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", base=(), sr_width=None)
    with pytest.raises(errors.NoClasses):
        store.predict(PHOTOS["yak"])
    for name in NAMES:
        store.teach(name, PHOTOS[name])
    assert [store.predict([PHOTOS[name][0]])[0].top[0].name for name in NAMES] == list(NAMES)
    means = [
        store.network.embed(store.read(PHOTOS[name]).pictures)["g"].mean(0).flatten().double()
        for name in sorted(NAMES)
    ]
    query = store.network.embed(store.read(drawings("query", 1)).pictures)["g"].flatten().double()
    expected = [float(query @ mean / query.norm() / mean.norm()) for mean in means]
    by_name = {
        candidate.name: candidate.similarity for candidate in store.predict(drawings("query", 1))[0].top
    }
    np.testing.assert_allclose([by_name[name] for name in sorted(NAMES)], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("act", "kind", "fields"),
    [
        (lambda s: s.teach("  ", PHOTOS["yak"]), errors.BadName, {"name": ""}),
        (lambda s: s.teach("a\x00b", PHOTOS["yak"]), errors.BadName, {"name": "a\x00b"}),
        (lambda s: s.teach("a\u202eb", PHOTOS["yak"]), errors.BadName, {"name": "a\u202eb"}),
        (lambda s: s.teach("Unknown", PHOTOS["yak"]), errors.BadName, {"name": "Unknown"}),
        (lambda s: s.teach("../../etc/passwd", PHOTOS["yak"]), errors.BadName, {"name": "../../etc/passwd"}),
        (lambda s: s.teach("C:\\windows", PHOTOS["yak"]), errors.BadName, {"name": "C:\\windows"}),
        (lambda s: s.teach("n" * 101, PHOTOS["yak"]), errors.BadName, {"name": "n" * 101}),
        (lambda s: s.teach("yak", []), BadInput, {"name": "X"}),
        (lambda s: s.teach("yak", PHOTOS["okapi"]), errors.PhotoHasClass, {"owner": "okapi"}),
        (lambda s: s.teach("yak", drawings("sample of ant", 1)), errors.PhotoHasClass, {"owner": "ant"}),
        (lambda s: s.forget("yeti"), errors.UnknownClass, {"name": "yeti"}),
        (lambda s: s.rename("Cow", "ox"), errors.UnknownClass, {"name": "Cow"}),
        (lambda s: s.rename("okapi", "ant"), errors.ClassExists, {"name": "okapi", "new_name": "ant"}),
        (lambda s: s.merge("okapi", "okapi"), errors.BadName, {"name": "okapi"}),
        (lambda s: s.drop("okapi", []), errors.UnknownPhotos, {"photos": ()}),
        (lambda s: s.drop("okapi", [1]), errors.UnknownPhotos, {"name": "okapi", "photos": (1,)}),
        (lambda s: s.drop("ant", [s.photos("ant")[0].id]), errors.UnknownPhotos, {"name": "ant"}),
        (lambda s: s.drop("yeti", ids(s, "okapi")), errors.UnknownClass, {"name": "yeti"}),
        (
            lambda s: s.move("okapi", [*ids(s, "okapi"), 10**6], "emu"),
            errors.UnknownPhotos,
            {"photos": (10**6,)},
        ),
        (lambda s: s.move("okapi", ids(s, "okapi"), "okapi"), errors.BadName, {"name": "okapi"}),
        (lambda s: s.move("okapi", ids(s, "okapi"), "../emu"), errors.BadName, {"name": "../emu"}),
    ],
)
def test_refusals_leave_no_trace(
    store: Store, act: Callable[[Store], object], kind: type[UserError], fields: dict[str, object]
) -> None:
    store.teach("okapi", PHOTOS["okapi"])
    before = store.digest(), store.history()
    with pytest.raises(kind) as refused:
        act(store)
    assert type(refused.value) is kind
    assert vars(refused.value).items() >= fields.items()
    assert (store.digest(), store.history()) == before
    store.teach("yak", PHOTOS["yak"])  # the store goes on


def test_names_are_text(store: Store) -> None:
    for name in ("AC/DC", "1.5 mm", "<script>", "'; DROP TABLE classes; --", "Ōkapi 🦓"):
        store.teach(name, drawings(name, 1))
        assert name in store.snapshot().names
    assert store.teach("  Café ".replace("é", "é"), drawings("café", 1)).name == "Café"


SHOWN_AS_NOTHING = (
    *("", " ", "\u00a0", "\u2003", "\u200d", "\ufe0f", "\u200d\ufe0f \u200c", "\u2800", "\u3164", "\uffa0"),
    *(
        "\u115f\u1160",
        "\u034f",
        "\u17b4",
        "\U0001d159",
        "\U000e0100",
        "\u180b",
        "\u180e",
        "\u00ad",
        "ant\u3164",
    ),
)


@pytest.mark.parametrize("name", SHOWN_AS_NOTHING)
def test_names_that_show_as_nothing_are_refused(store: Store, name: str) -> None:
    with pytest.raises(errors.BadName):
        store.teach(name, PHOTOS["yak"])
    with pytest.raises(errors.BadName):
        store.rename("ant", name)


def test_emoji_and_joined_letters_are_names() -> None:
    for name in ("\u2764\ufe0f", "\U0001f469\u200d\U0001f680", "\u0645\u06cc\u200c\u062e"):
        assert checked_name(name) == name


def test_readers_and_a_writer_at_once(store: Store) -> None:
    """Readers of other connections always see whole classes."""
    failures: list[str] = []
    done = threading.Event()

    def read() -> None:
        with Store(store.folder) as reader:
            while not done.is_set():
                snapshot = reader.snapshot()
                taught = [name for name in snapshot.names if name.startswith("class")]
                photos = {info.name: info.photos for info in reader.classes()}
                if snapshot.classifier.classes != len(snapshot.names):
                    failures.append(f"{snapshot.names}")
                if any(photos[name] != 2 for name in taught):
                    failures.append(f"{taught} {photos}")

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for index in range(12):
        store.teach(f"class {index}", drawings(f"class {index}", 2))
    done.set()
    for reader in readers:
        reader.join()
    assert not failures
    assert len(Store(store.folder).snapshot().names) == 3 + 12


def test_a_change_does_not_hide_a_later_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer teaches, and is read, between a report's commit and its end."""
    other = Store(store.folder)

    @contextmanager
    def transaction(connection: sqlite3.Connection) -> Iterator[None]:
        with database.transaction(connection):
            yield
        if connection is store._writer:
            other.teach("yak", PHOTOS["yak"])
            assert "yak" in store.snapshot().names

    monkeypatch.setattr("fairshot.teaching.store.transaction", transaction)
    store.teach("okapi", PHOTOS["okapi"])
    assert store.snapshot().names == other.snapshot().names == ["ant", "bee", "cow", "okapi", "yak"]
    assert store.predict(PHOTOS["yak"]) == other.predict(PHOTOS["yak"])


def test_two_writers_lose_nothing(store: Store) -> None:
    def write(who: str) -> None:
        with Store(store.folder) as writer:
            for index in range(6):
                writer.teach(f"{who} {index}", drawings(f"{who} {index}", 1))

    writers = [threading.Thread(target=write, args=(who,)) for who in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(store.snapshot().names) == 3 + 12


def test_creation_is_whole_or_absent(tmp_path: Path) -> None:
    spec, wrong = store_spec(network(sr_width=None)), store_spec(network(), ["ant", "unknown"])
    with pytest.raises(errors.BadName):
        Store.create(tmp_path / "store", wrong)
    assert list(tmp_path.iterdir()) == []
    Store.create(tmp_path / "store", spec)
    with pytest.raises(errors.FolderExists):
        Store.create(tmp_path / "store", spec)
    with pytest.raises(errors.NotAStore):
        Store(tmp_path)


def test_a_foreign_database_is_refused(store: Store, tmp_path: Path) -> None:
    store.close()
    with sqlite3.connect(store.folder / DATABASE) as connection:
        connection.execute("CREATE TRIGGER slipped AFTER INSERT ON images BEGIN DELETE FROM classes; END")
    with pytest.raises(errors.ForeignDatabase):
        Store(store.folder)
    (store.folder / DATABASE).write_bytes(b"not a database" * 100)
    with pytest.raises(errors.ForeignDatabase):
        Store(store.folder)


def test_the_last_class_is_forgotten_after_unlabelled_images_moved_it(tmp_path: Path) -> None:
    with make_store(tmp_path / "store", base=(), sr_width=None) as store:
        photos = drawings("elk", 6)
        store.teach("elk", photos[:3])
        assert store.adapt(photos[3:]).absorbed
        store.forget("elk")
        assert store.classes() == []
        store.undo()
        assert [info.name for info in store.classes()] == ["elk"]


def test_metrics_are_read_as_whole_matrices_too_and_not_of_more_ranks_than_features(tmp_path):
    net, path = network(), tmp_path / "classifier.safetensors"
    classifier = store_spec(net, NAMES, **GATES["class covariance"]).classifier
    tensors = classifier.tensors()
    common, roots = tensors.pop("gate.metric_common"), tensors.pop("gate.metric_roots")
    write_tensors(path, tensors | {"gate.metrics": common - roots.mT @ roots}, classifier.settings)
    shown = {"g": torch.rand(5, *net.shape), "g_tilde": torch.rand(5, *net.shape_tilde)}
    expected = classifier.decide(shown).scores
    torch.testing.assert_close(read_classifier(path, net).decide(shown).scores, expected, atol=1e-4, rtol=0)
    views, width = net.shape
    wide = {"gate.metric_common": common, "gate.metric_roots": torch.zeros(3, views, width + 1, width)}
    write_tensors(path, tensors | wide, classifier.settings)
    with pytest.raises(PathUnusable, match=r"gate\.metric_roots"):
        read_classifier(path, net)
