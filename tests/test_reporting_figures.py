"""Figures: their lines carry exactly the metrics, nothing is empty, labels do not overlap."""

import itertools

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from fairshot.reporting.figures import accuracy_per_session, trade_off, write_figures
from fairshot.reporting.groups import group_results
from fairshot.reporting.style import BASE_COLOUR, NOVEL_COLOUR
from results_factory import make_result


@pytest.fixture
def results():
    return [make_result("ncm", novel=0.1), *(make_result("sss", seed, novel=0.5) for seed in range(3))]


def line(axes, label):
    (found,) = [line for line in axes.lines if line.get_label() == label]
    return found


def assert_has_data(figure):
    """Fail for an empty axis."""
    assert figure.axes
    for axes in figure.axes:
        assert axes.has_data(), axes.get_title()
        assert all(np.isfinite(np.asarray(line.get_ydata(), float)).any() for line in axes.lines)
        assert axes.get_xlabel() or not axes.get_subplotspec().is_last_row()


def assert_labels_do_not_overlap(figure):
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for axes in figure.axes:
        boxes = [text.get_window_extent(canvas.get_renderer()) for text in axes.texts]
        for one, other in itertools.combinations(boxes, 2):
            assert not one.overlaps(other), axes.get_title()


def test_accuracy_lines_are_the_metrics(results):
    ncm, sss = group_results(results)
    figure = accuracy_per_session([ncm, sss])
    assert_has_data(figure)
    assert_labels_do_not_overlap(figure)
    assert [axes.get_title("left") for axes in figure.axes] == ["ncm", "sss"]
    for axes, runs in zip(figure.axes, (results[:1], results[1:]), strict=True):
        for label, name in (("base", "base"), ("novel", "inc"), ("overall", "overall")):
            table = [[getattr(s, name) for s in run.metrics.sessions] for run in runs]
            want = np.array(table, dtype=float)[:, 1 if name == "inc" else 0 :].mean(axis=0)
            np.testing.assert_allclose(line(axes, label).get_ydata(), want)
            first = 1 if name == "inc" else 0
            np.testing.assert_array_equal(line(axes, label).get_xdata(), range(first, 4))
        assert line(axes, "base").get_color() == BASE_COLOUR
        assert line(axes, "novel").get_color() == NOVEL_COLOUR


def test_trade_off_path_is_base_against_novel(results):
    figure = trade_off(group_results(results))
    assert_has_data(figure)
    sessions = results[0].metrics.sessions[1:]
    path = line(figure.axes[0], "ncm")
    np.testing.assert_allclose(path.get_xdata(), [s.base for s in sessions])
    np.testing.assert_allclose(path.get_ydata(), [s.inc for s in sessions])


@pytest.mark.parametrize("novel", [0.0, 0.75, 0.8, 1.0])
def test_labels_stay_apart_when_lines_end_together(novel):
    figure = accuracy_per_session(group_results([make_result(novel=novel, base=0.8)]))
    assert_labels_do_not_overlap(figure)


def test_files_are_written_and_are_pictures(results, tmp_path):
    before = dict(mpl.rcParams)
    paths = write_figures([*results, make_result(benchmark="cifar100")], tmp_path)
    assert [path.name for path in paths] == [
        f"{figure}-{benchmark}.{kind}"
        for benchmark in ("doodles", "cifar100")
        for figure in ("accuracy", "trade-off")
        for kind in ("png", "svg")
    ]
    for path in paths:
        if path.suffix == ".png":
            assert len(np.unique(np.asarray(Image.open(path).convert("L")))) > 20
        else:
            assert path.read_text().rstrip().endswith("</svg>")
    assert dict(mpl.rcParams) == before


def test_a_run_of_the_base_session_alone_has_no_trade_off(tmp_path):
    paths = write_figures([make_result(sizes=(5,))], tmp_path)
    assert {path.name for path in paths} == {"accuracy.png", "accuracy.svg"}
