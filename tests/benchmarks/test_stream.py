"""Streams cut from a benchmark: properties that hold for every setting, and settings that cannot be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fairshot.benchmarks import UnknownBenchmark, load_stream, names
from fairshot.benchmarks.pictures import Pictures
from fairshot.benchmarks.stream import (
    Benchmark,
    LabelledPictures,
    Protocol,
    StreamSettings,
    build_stream,
)
from fairshot.errors import BadSetting

CLASSES, TRAIN, TEST = 12, 7, 3


def _labelled(each: int, first: int) -> LabelledPictures:
    """Each picture is one row of two pixels: the class it shows, and its own number."""
    labels = np.tile(np.arange(CLASSES), each)
    pixels = np.stack([labels, first + np.arange(len(labels))], axis=1).astype(np.uint8)
    return LabelledPictures(Pictures.from_array(pixels[:, None, :]), labels)


TOY = Benchmark(
    name="toy",
    class_names=tuple(f"class {label}" for label in range(CLASSES)),
    train=_labelled(TRAIN, 0),
    test=_labelled(TEST, 100),
    protocol=Protocol(base_classes=4, way=2, shots=3, sessions=4),
    listed_shots={label: np.array([4, 1, 6]) * CLASSES + label for label in range(4, CLASSES)},
)


def _truth(images: LabelledPictures) -> tuple[list[int], list[int]]:
    """Return the official class and the number of each image, read from its pixels."""
    pixels = [picture.reshape(2) for picture in images.pictures]
    return [int(p[0]) for p in pixels], [int(p[1]) for p in pixels]


def test_a_digest_tells_pixels_classes_sizes_and_order_apart():
    images = TOY.train.take([0, 1, 2])
    assert images.sha256() == TOY.train.take([5, 0, 1, 2]).take([1, 2, 3]).sha256()
    turned = Pictures(images.pictures.buffer, images.pictures.offsets, images.pictures.sizes[:, ::-1], 1)
    others = [
        images.take([0, 1]),
        images.take([1, 0, 2]),
        TOY.train.take([0, 1, 2 + CLASSES]),
        LabelledPictures(images.pictures, images.labels[::-1]),
        LabelledPictures(turned, images.labels),
    ]
    assert len({each.sha256() for each in (images, *others)}) == len(others) + 1


@st.composite
def _settings(draw: st.DrawFn) -> StreamSettings:
    base = draw(st.integers(1, CLASSES - 1))
    way = draw(st.integers(1, CLASSES - base))
    return StreamSettings(
        base_classes=base,
        way=way,
        shots=draw(st.integers(1, TRAIN)),
        sessions=draw(st.none() | st.integers(0, (CLASSES - base) // way)),
        class_order_seed=draw(st.none() | st.integers(0, 2**40)),
        shot_seed=draw(st.none() | st.integers(0, 2**40)),
    )


@given(_settings())
def test_every_stream_keeps_the_rules_of_the_setting(settings: StreamSettings):
    stream = build_stream(TOY, settings)
    seen_classes: list[int] = []
    seen_numbers: set[int] = set()
    for t, session in enumerate(stream.sessions):
        assert session.classes == tuple(range(len(seen_classes), stream.seen_classes(t)))
        assert len(session.classes) == (settings.base_classes if t == 0 else settings.way)
        seen_classes += session.classes
        expected = TRAIN if t == 0 else settings.shots
        np.testing.assert_array_equal(np.bincount(session.train.labels)[session.classes[0] :], expected)
        for images in (session.train, session.test):
            classes, numbers = _truth(images)
            assert [stream.class_names[label] for label in images.labels] == [f"class {c}" for c in classes]
            assert not seen_numbers & set(numbers)
            assert len(set(numbers)) == len(numbers)
            seen_numbers |= set(numbers)
        assert set(session.train.labels) == set(session.classes)
        accumulated = stream.seen_test(t)
        np.testing.assert_array_equal(np.bincount(accumulated.labels), [TEST] * len(seen_classes))
        assert accumulated.pictures.buffer is stream.base.test.pictures.buffer
    if settings.sessions is not None:
        assert len(stream.sessions) == 1 + settings.sessions


@given(_settings())
def test_the_same_settings_give_the_same_stream(settings: StreamSettings):
    one, two = build_stream(TOY, settings), build_stream(TOY, settings)
    assert one.class_names == two.class_names
    for a, b in zip(one.sessions, two.sessions, strict=True):
        assert _truth(a.train) == _truth(b.train)
        assert _truth(a.test) == _truth(b.test)


@given(st.lists(st.integers(0, 2**32), min_size=8, max_size=8, unique=True))
def test_other_seeds_give_other_streams(seeds: list[int]):
    orders = {build_stream(TOY, StreamSettings(class_order_seed=seed)).class_names for seed in seeds}
    shots = {
        str([_truth(s.train) for s in build_stream(TOY, StreamSettings(shot_seed=seed)).sessions])
        for seed in seeds
    }
    assert len(orders) == len(shots) == len(seeds)


def test_the_official_stream_uses_the_lists_and_one_shot_is_their_first():
    official = build_stream(TOY, StreamSettings())
    assert official.class_names == TOY.class_names
    assert _truth(official.sessions[1].train)[1] == [52, 16, 76, 53, 17, 77]
    one_shot = build_stream(TOY, StreamSettings(shots=1))
    assert _truth(one_shot.sessions[1].train)[1] == [52, 53]


def test_sessions_shrink_to_the_classes_left_unless_they_are_asked_for():
    assert len(build_stream(TOY, StreamSettings(way=3)).sessions) == 1 + 2
    assert len(build_stream(TOY, StreamSettings(way=1)).sessions) == 1 + 4


@pytest.mark.parametrize(
    ("settings", "key", "given"),
    [
        (StreamSettings(way=9), "benchmark.way", 9),
        (StreamSettings(sessions=5), "benchmark.sessions", 5),
        (StreamSettings(base_classes=13), "benchmark.base_classes", 13),
        (StreamSettings(shots=8), "benchmark.shots", 8),
    ],
)
def test_settings_the_benchmark_cannot_serve_name_their_key(settings, key, given):
    with pytest.raises(BadSetting) as refused:
        build_stream(TOY, settings)
    assert (refused.value.key, refused.value.given) == (key, given)


@pytest.mark.parametrize(
    "wrong", [{"shots": 0}, {"way": 0}, {"base_classes": 0}, {"ways": 5}, {"shots": "few"}]
)
def test_settings_that_can_never_be_are_refused_when_written(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        StreamSettings(**wrong)


def test_unknown_benchmarks_get_the_list_of_names():
    with pytest.raises(UnknownBenchmark) as unknown:
        load_stream("doodle", StreamSettings())
    assert "doodles" in unknown.value.names
    assert "doodles" in names()
