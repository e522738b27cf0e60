"""Own folders of photographs: a split drawn by seed, kept, and replayed."""

import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fairshot.benchmarks import image_folder
from fairshot.benchmarks.cache import Resize
from fairshot.benchmarks.image_folder import Split, TooFewImages, draw_split
from fairshot.benchmarks.stream import Stream, StreamSettings
from fairshot.errors import BadImage, FileRefused, PathUnusable
from fairshot.progress import SILENT

DEFAULTS = StreamSettings()
LOADING = {"reporter": SILENT, "resize": Resize(256, enlarge=False)}
load_folder = partial(image_folder.load_folder, **LOADING)
replay_folder = partial(image_folder.replay_folder, **LOADING)


def _photo(path: Path, class_number: int, number: int) -> None:
    """Save an image whose first pixel says what it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    array = np.zeros((6, 8, 3), np.uint8)
    array[0, 0] = class_number, number, 7
    Image.fromarray(array).save(path)


@pytest.fixture
def photos(tmp_path) -> Path:
    for c in range(7):
        for i in range(8 + c):
            _photo(tmp_path / "photos" / f"kind {c}" / f"{i}.{'PNG' if i % 2 else 'png'}", c, i)
    return tmp_path / "photos"


def _shown(stream: Stream) -> list[list[tuple[str, int, int]]]:
    """Return what each session shows: the class name given, and the class and number drawn in the image."""
    return [
        [
            (stream.class_names[label], *map(int, picture[0, 0, :2]))
            for images in (session.train, session.test)
            for label, picture in zip(images.labels, images.pictures, strict=True)
        ]
        for session in stream.sessions
    ]


def test_a_folder_becomes_a_stream_that_its_split_replays(photos, tmp_path):
    stream, split = load_folder(photos, DEFAULTS, seed=3)
    assert [len(session.classes) for session in stream.sessions] == [5, 1, 1]
    shown = _shown(stream)
    everything = [item for session in shown for item in session]
    assert len(set(everything)) == len(everything)
    assert all(name == f"kind {c}" for name, c, _ in everything)
    for session in stream.sessions[1:]:
        assert len(session.train) == 5
        assert len(session.test) == round(0.2 * (8 + int(stream.class_names[session.classes[0]][-1])))
    split.write(tmp_path)
    again = Split.read(tmp_path)
    assert again == split
    assert _shown(replay_folder(photos, again)) == shown
    assert _shown(load_folder(photos, DEFAULTS, seed=3)[0]) == shown
    assert _shown(load_folder(photos, DEFAULTS, seed=4)[0]) != shown
    fixed = [load_folder(photos, StreamSettings(class_order_seed=1), seed=seed)[1].classes for seed in (3, 4)]
    assert [each.name for each in fixed[0]] == [each.name for each in fixed[1]]
    assert all(a.test != b.test for a, b in zip(*fixed, strict=True))
    assert " classes: kind " in split.summary()[0]
    assert "session 2: 5 training and" in split.summary()[2]
    assert " of 1 class: kind " in split.summary()[2]


def test_unreadable_files_are_listed_and_skipped(photos):
    broken = photos / "kind 6" / "0.png"
    broken.write_bytes(broken.read_bytes()[:50])
    (photos / "kind 1" / "notes.txt").write_text("not an image")
    (photos / "kind 1" / ".hidden.png").write_text("not looked at")
    (photos / "stray.txt").write_text("no class")
    stream, split = load_folder(photos, DEFAULTS, seed=0)
    assert sorted(split.skipped) == ["kind 1/notes.txt", "kind 6/0.png"]
    assert "cannot be read" in split.skipped["kind 6/0.png"]
    assert ("kind 6", 6, 0) not in [item for session in _shown(stream) for item in session]
    assert any(line.startswith("skipped kind 6/0.png") for line in split.summary())


def test_near_empty_classes_are_refused_with_a_list(photos):
    (photos / "empty").mkdir()
    for i in range(5):
        _photo(photos / "few" / f"{i}.png", 9, i)
    with pytest.raises(TooFewImages, match=r"empty \(0\), few \(5\); each class needs at least 6") as problem:
        load_folder(photos, DEFAULTS, seed=0)
    assert (problem.value.images, problem.value.shots) == ({"empty": 0, "few": 5}, 5)
    (photos / "empty").rmdir()
    load_folder(photos, StreamSettings(shots=4), seed=0)


def test_folders_that_are_none_say_what_is_expected(tmp_path):
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(PathUnusable, match=r"<class>/\*\.jpg") as refused:
            load_folder(folder, DEFAULTS, seed=0)
        assert refused.value.path == folder


def test_a_replay_without_its_images_is_refused(photos):
    _, split = load_folder(photos, DEFAULTS, seed=0)
    gone = photos / split.classes[0].test[0]
    gone.unlink()
    with pytest.raises(BadImage, match="1 of the") as refused:
        replay_folder(photos, split)
    assert refused.value.name == str(gone)


def test_a_file_that_is_no_split_is_refused(tmp_path):
    (tmp_path / "split.json").write_text('{"seed": 1}')
    with pytest.raises(FileRefused) as refused:
        Split.read(tmp_path)
    assert refused.value.path == tmp_path / "split.json"


@given(
    counts=st.lists(st.integers(6, 30), min_size=3, max_size=30),
    seed=st.integers(0, 2**40),
    shot_seed=st.none() | st.integers(0, 99),
)
def test_every_split_keeps_the_rules(counts, seed, shot_seed):
    files = {f"c{c}": [f"c{c}/{i}.jpg" for i in range(count)] for c, count in enumerate(counts)}
    settings = StreamSettings(shot_seed=shot_seed)
    split = draw_split(files, settings, seed, {})
    assert split == draw_split(files, settings, seed, {})
    assert len(split.classes) == len(counts) == split.base_classes + split.way * split.sessions
    assert split.base_classes >= max(0.6 * len(counts), 2)
    assert split.sessions >= 1
    for label, each in enumerate(split.classes):
        assert not set(each.train) & set(each.test)
        assert {*each.train, *each.test} <= set(files[each.name])
        assert len(each.test) >= 1
        if label < split.base_classes:
            assert len(each.train) + len(each.test) == len(files[each.name])
            assert len(each.train) >= 5
        else:
            assert len(each.train) == 5
    other = draw_split(files, StreamSettings(shot_seed=100), seed, {})
    assert [each.test for each in other.classes] == [each.test for each in split.classes]


def test_a_digest_tells_folders_of_the_same_name_apart_and_seeds_not(photos, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    copy = shutil.copytree(photos, tmp_path / "elsewhere" / photos.name)
    digests = [load_folder(photos, DEFAULTS, seed)[1].pictures for seed in (0, 1)]
    digests.append(load_folder(copy, DEFAULTS, seed=0)[1].pictures)
    assert len(set(digests)) == 1
    assert digests[0]
    file = next(copy.glob("*/*.png"))
    Image.new("RGB", (91, 17)).save(file)
    assert load_folder(copy, DEFAULTS, seed=0)[1].pictures != digests[0]
