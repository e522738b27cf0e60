"""Figures: their lines carry exactly the metrics, nothing is empty, labels do not overlap."""

import itertools

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from PIL import Image

from fairshot.reporting.figures import classes, features, gates, style
from fairshot.reporting.figures.accuracy import (
    accuracy_per_session,
    imbalance,
    overall_per_session,
    shows_diagonal,
    trade_off,
    write_figures,
)
from fairshot.reporting.figures.style import method_id, method_style, method_styles
from fairshot.reporting.figures.training import TrainingLog, training_curve
from fairshot.reporting.groups import group_results
from fairshot.reporting.runs import Features
from fairshot.studies.published import published
from fairshot.studies.tradeoff import CurvePoint, RuleCurve, TradeOff
from support.results_factory import make_result


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
        panel = axes.get_subplotspec()  # None for a colour bar, which has its label at the side
        assert (
            axes.get_xlabel() or axes.get_ylabel()
            if panel is None
            else axes.get_xlabel() or not panel.is_last_row()
        )


def assert_labels_do_not_overlap(figure):
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for axes in figure.axes:
        boxes = [
            Text.get_window_extent(text, canvas.get_renderer()) for text in axes.texts
        ]  # without leaders
        for one, other in itertools.combinations(boxes, 2):
            assert not one.overlaps(other), axes.get_title()


def test_accuracy_lines_are_the_metrics(results):
    ncm, sss = group_results(results)
    figure = accuracy_per_session([ncm, sss])
    assert_has_data(figure)
    assert_labels_do_not_overlap(figure)
    assert [axes.get_title("left") for axes in figure.axes] == ["NCM", "SSS"]
    for axes, runs in zip(figure.axes, (results[:1], results[1:]), strict=True):
        for label, name in (("base", "base"), ("novel", "inc"), ("overall", "overall")):
            table = [[getattr(s, name) for s in run.metrics.sessions] for run in runs]
            want = np.array(table, dtype=float)[:, 1 if name == "inc" else 0 :].mean(axis=0)
            np.testing.assert_allclose(line(axes, label).get_ydata(), want)
            first = 1 if name == "inc" else 0
            np.testing.assert_array_equal(line(axes, label).get_xdata(), range(first, 4))
        assert line(axes, "base").get_color() == style.BASE
        assert line(axes, "novel").get_color() == style.NOVEL


MANY = ("sss", "sss_bgmm", "ncm", "alice", *(f"method {i}" for i in range(12)))


def drawn_for_methods(axes):
    """Each method's lines in these axes, by its name."""
    lines = {}
    for drawn in axes.lines:
        if drawn.get_gid():
            lines.setdefault(drawn.get_gid(), []).append(drawn)
    return lines


@pytest.mark.parametrize("many", [5, 16])
def test_no_two_methods_of_a_figure_look_the_same(many):
    groups = group_results([make_result(method, len(method)) for method in MANY[:many]])
    columns = {"epoch": np.arange(3.0), "loss": np.arange(3.0)}
    styles = zip(groups, method_styles(groups), strict=True)
    logs = [TrainingLog(group.label, style, columns) for group, style in styles]
    for figure in (
        overall_per_session(groups),
        trade_off(groups),
        imbalance(groups),
        training_curve(logs),
    ):
        for axes in figure.axes:
            lines = drawn_for_methods(axes)
            assert len(lines) == many
            styles = {(of[0].get_color(), of[0].get_linestyle()) for of in lines.values()}
            assert len(styles) == many
            widths = {name: of[0].get_linewidth() for name, of in lines.items()}
            others = {width for name, width in widths.items() if name not in ("method-0", "method-1")}
            assert min(widths["method-0"], widths["method-1"]) > 1.5 * max(others)
        for legend in figure.legends:
            assert len({(h.get_color(), h.get_linestyle()) for h in legend.legend_handles}) == many


@pytest.mark.parametrize("many", [1, 4])
def test_few_methods_share_a_panel_where_dashes_tell_them_apart(many):
    figure = imbalance(group_results([make_result(method) for method in MANY[:many]]))
    assert len(figure.axes) == 2
    for axes in figure.axes:
        lines = drawn_for_methods(axes)
        assert len({of[0].get_linestyle() for of in lines.values()}) == len(lines) == many
        assert all(len({one.get_linestyle() for one in of}) == 1 for of in lines.values())


def test_sss_stands_out_only_among_others():
    (alone,) = method_styles(group_results([make_result("sss")]))
    ncm, sss = method_styles(group_results([make_result("ncm"), make_result("sss")]))
    assert sss["linewidth"] > ncm["linewidth"] == alone["linewidth"]
    assert sss["zorder"] > ncm["zorder"]


def test_methods_of_one_colour_have_other_markers():
    styles = [method_style(index) for index in range(32)]
    assert len({(one["color"], one["linestyle"]) for one in styles}) == 32
    assert len({(one["color"], one["marker"]) for one in styles}) == 32
    assert not {style.BASE, style.NOVEL} & {one["color"] for one in styles}


def test_kinds_apart_are_the_metrics():
    results = [make_result(method) for method in MANY[:5]]
    figure = imbalance(group_results(results))
    assert_has_data(figure)
    sessions = results[2].metrics.sessions
    kinds = (("Base", "base", 0), ("Inc", "inc", 1), ("CInc", "cinc", 1), ("PInc", "pinc", 2))
    for axes, (title, name, first) in zip(figure.axes, kinds, strict=True):
        values = line(axes, f"NCM: {title}").get_ydata()
        np.testing.assert_allclose(values, [getattr(s, name) for s in sessions[first:]])


def test_trade_off_path_is_base_against_novel(results):
    figure = trade_off(group_results(results))
    assert_has_data(figure)
    sessions = results[0].metrics.sessions[1:]
    path = line(figure.axes[0], "NCM")
    np.testing.assert_allclose(path.get_xdata(), [s.base for s in sessions])
    np.testing.assert_allclose(path.get_ydata(), [s.inc for s in sessions])


@pytest.mark.parametrize(("novel", "in_sight"), [(0.8, True), (0.1, False)])
def test_the_diagonal_is_spoken_of_where_it_can_be_seen(novel, in_sight):
    groups = group_results([make_result(base=0.8, novel=novel, per_class=200)])
    assert shows_diagonal(trade_off(groups)) == in_sight


@pytest.mark.parametrize(("base", "novel"), [(1.0, 1.0), (0.0, 0.0), (1.0, 0.0), (0.3, 0.3)])
def test_trade_off_has_room_for_any_result(base, novel):
    figure = trade_off(group_results([make_result(base=base, novel=novel)]))
    assert_has_data(figure)
    path = line(figure.axes[0], "SSS")
    for values, (low, high) in (
        (path.get_xdata(), figure.axes[0].get_xlim()),
        (path.get_ydata(), figure.axes[0].get_ylim()),
    ):
        assert all(max(low, 0.5) < value < min(high, 99.5) or value in (low, high) for value in values)


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


def test_overall_figure_shows_ours_and_each_published_method_once():
    sizes = (60, *[5] * 8)
    groups = group_results(
        [make_result(m, 0, "cifar100", sizes, novel=n) for m, n in (("ncm", 0.1), ("sss", 0.5))]
    )
    rows = published().on("cifar100", 9)
    figure = overall_per_session(groups, rows)
    assert_has_data(figure)
    assert_labels_do_not_overlap(figure)
    for group in groups:
        want = [session.overall for session in group.results[0].metrics.sessions]
        np.testing.assert_allclose(line(figure.axes[0], group.label).get_ydata(), want)
    shown = {drawn.get_label() for drawn in figure.axes[0].lines}
    assert shown == {"NCM", "SSS"} | {f"{row.method}, published" for row in rows}
    first = next(row for row in rows if row.method == "TEEN")
    np.testing.assert_allclose(line(figure.axes[0], "TEEN, published").get_ydata(), first.overall)


def test_many_lines_get_more_room_for_their_labels():
    rows = published().on("cifar100", 9)
    many = group_results([make_result(method, 0, "cifar100", (60, *[5] * 8)) for method in MANY[:14]])
    crowd = overall_per_session(many, rows)
    assert_labels_do_not_overlap(crowd)
    few, more = (figure.get_size_inches() for figure in (overall_per_session(many[:2]), crowd))
    assert more[1] > 1.4 * few[1]
    assert more[0] > few[0] + 1.5


def test_long_names_leave_room_for_the_curves():
    long = {"training": {"some_long_setting": "x" * 30}}
    groups = group_results([make_result("sss"), make_result("sss", recipe=long), make_result("ncm")])
    assert max(len(group.label) for group in groups) > 50
    for figure in (overall_per_session(groups), trade_off(groups), imbalance(groups)):
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        for axes in figure.axes:
            assert axes.get_window_extent().width > 200
        for legend in figure.legends:
            assert legend.get_window_extent().width < 1.1 * figure.bbox.width


def test_imbalance_lines_are_the_metrics(results):
    figure = imbalance(group_results(results))
    assert_has_data(figure)
    left, right = figure.axes
    sessions = results[0].metrics.sessions
    for axes, title, name, first in (
        (left, "Base", "base", 0),
        (left, "Inc", "inc", 1),
        (right, "CInc", "cinc", 1),
        (right, "PInc", "pinc", 2),
    ):
        drawn = line(axes, f"NCM: {title}")
        np.testing.assert_allclose(drawn.get_ydata(), [getattr(s, name) for s in sessions[first:]])
        assert drawn.get_color() == (style.BASE if name == "base" else style.NOVEL)


def test_confusion_pixels_are_the_shares(results):
    (ncm, _) = group_results(results)
    matrix = np.array(results[0].confusions[-1])
    pixels = classes.confusion_pixels(ncm, 3)
    want = matrix / matrix.sum(axis=1, keepdims=True)
    np.testing.assert_allclose((pixels[:, :, 3] / 255) ** 2, want, atol=0.01)
    assert len({tuple(p) for p in pixels[:6, :, :3].reshape(-1, 3)}) == 1
    assert tuple(pixels[0, 0, :3]) != tuple(pixels[-1, 0, :3])
    figure = classes.confusion(group_results(results))
    assert_has_data(figure)
    np.testing.assert_array_equal(figure.axes[0].images[0].get_array(), pixels)


def test_answers_follow_the_blocks(results):
    group = group_results(results)[0]
    matrix = results[0].confusions[-1]
    for kind, span in (("base", range(6)), ("novel", range(6, 12))):
        total = sum(sum(matrix[i]) for i in span)
        right = sum(matrix[i][i] for i in span)
        base = sum(matrix[i][j] for i in span for j in range(6) if i != j)
        novel = sum(matrix[i][j] for i in span for j in range(6, 12) if i != j)
        want = [100 * part / total for part in (right, base, novel)]
        assert list(classes.answers(group, 3)[kind]) == pytest.approx(want)
    assert set(classes.answers(group, 0)) == {"base"}


def test_bars_are_differences_of_class_accuracies(results):
    ncm, sss = group_results(results)
    points = classes.difference(sss, ncm)
    seeds = [np.array(run.confusions[-1]) for run in results[1:]]
    own = np.mean([np.diagonal(m) / m.sum(axis=1) for m in seeds], axis=0)
    other = np.array(results[0].confusions[-1])
    np.testing.assert_allclose(points, 100 * (own - np.diagonal(other) / other.sum(axis=1)))
    figure = classes.class_bars(sss, points, "title")
    assert_has_data(figure)
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    np.testing.assert_allclose(heights, [*sorted(points[:6]), *sorted(points[6:])])
    colours = [mpl.colors.to_hex(bar.get_facecolor()) for bar in figure.axes[0].patches]
    assert colours == [style.BASE] * 6 + [style.NOVEL] * 6
    gained, lost = classes.extremes(sss, points)
    assert gained[0].startswith(results[0].class_names[int(np.argmax(points))])
    assert all("-" in name for name in lost)


def test_change_since_learnt_compares_with_the_session_of_the_class(results):
    group = group_results(results)[0]
    run = results[0]
    for label, change in enumerate(classes.change_since_learnt(group)):
        t = next(t for t, classes in enumerate(run.sessions) if label in classes)
        rates = [100 * run.confusions[s][label][label] / sum(run.confusions[s][label]) for s in (t, -1)]
        assert change == pytest.approx(rates[1] - rates[0])


def test_classes_are_averaged_over_the_seeds_that_have_the_same(results):
    _, *seeds = results
    seeds[1].class_names.reverse()  # own pictures: each seed draws which classes are base classes
    (group,) = group_results(seeds)
    assert len(group.results) == 3
    matrices = [np.array(seeds[index].confusions[-1]) for index in (0, 2)]
    want = np.mean([matrix / matrix.sum(axis=1, keepdims=True) for matrix in matrices], axis=0)
    np.testing.assert_allclose(classes.shares(group, 3), want)
    figure = classes.confusion([group])
    assert figure.axes[0].get_title("left") == "SSS, seeds 0, 2"
    (alone,) = group_results(seeds[:2])
    assert classes.confusion([alone]).axes[0].get_title("left") == "SSS, seed 0"
    assert classes.answers(alone, 3) == classes.answers(*group_results(seeds[:1]), 3)


@pytest.fixture
def panels(results):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 10)
    found = []
    for index, group in enumerate(group_results(results)):
        g = np.abs(rng.standard_normal((120, 2, 8)) + labels[:, None, None] % 4).astype(np.float32)
        found.append(features.MethodFeatures(group, index, Features(g, labels, 6)))
    return found


@pytest.mark.parametrize(
    ("lit", "best", "lowest", "highest"),
    [
        ((1, 16), "sss", "1.0 (NCM)", "(SSS)"),
        ((1, 16), "ncm", "1.0 (NCM)", "(NCM)"),
        ((4, 4), "ncm", "2.0 (NCM, SSS)", "(NCM)"),  # as on one base session
    ],
)
def test_what_occupancy_means_for_novel_classes_is_read_from_the_runs(lit, best, lowest, highest):
    labels, panels = np.arange(7), []
    for index, method in enumerate(("ncm", "sss")):
        result = make_result(method, sizes=(5, 2), novel=0.9 if method == best else 0.1)
        g = np.zeros((len(labels), 1, 16), np.float32)
        g[..., : lit[index]] = 1
        (group,) = group_results([result])
        panels.append(features.MethodFeatures(group, index, Features(g, labels, 5)))
    caption = features.occupancy_caption(panels)
    assert f"Here the lowest of base classes is {lowest}; the highest novel accuracy" in caption
    assert caption.endswith(f" % {highest}.")
    assert "Here" not in features.occupancy_caption(panels[:1])


def test_images_that_a_network_maps_to_one_vector_share_their_place():
    vectors = np.tile(np.float32([0.6, 0.8, 0, 0]), (30, 1))
    assert not features.embed_on_plane(vectors).any()


def test_occupancy_bars_are_sums_of_normalised_features(panels):
    figure = features.occupancy(panels)
    assert_has_data(figure)
    bars = [patch.get_width() for patch in figure.axes[0].patches]
    want = []
    for panel in panels:
        for kind in (True, False):
            sums = []
            for views, label in zip(panel.features.g.tolist(), panel.features.labels, strict=True):
                if (label < 6) == kind:
                    sums += [sum(vector) / sum(value**2 for value in vector) ** 0.5 for vector in views]
            want.append(sum(sums) / len(sums))
    assert bars == pytest.approx(want, rel=1e-5)


def test_heat_map_shows_normalised_features_base_first(panels):
    figure = features.heat_map(panels)
    assert_has_data(figure)
    shown = np.asarray(figure.axes[0].images[0].get_array())
    g = panels[0].features.g[:, 0]
    np.testing.assert_allclose(shown, g / np.linalg.norm(g, axis=1, keepdims=True), rtol=1e-5)
    assert figure.axes[0].get_gid() == method_id(0)


def test_tsne_is_seeded_and_shows_base_and_five_novel_classes(panels):
    one, other = (features.tsne(panels[:1]) for _ in range(2))
    assert_has_data(one)
    clouds = one.axes[0].collections
    assert [len(cloud.get_offsets()) for cloud in clouds] == [60, 10, 10, 10, 10, 10]
    for cloud, again in zip(clouds, other.axes[0].collections, strict=True):
        np.testing.assert_array_equal(cloud.get_offsets(), again.get_offsets())


def test_shown_images_are_at_most_so_many():
    labels = np.repeat(np.arange(100), 100)
    many = Features(np.ones((10000, 1, 2), np.float32), labels, 60)
    chosen = features.shown_images(many)
    assert len(chosen) <= 1500
    assert len(set(labels[chosen])) == 65
    assert {len(chosen[labels[chosen] == label]) for label in set(labels[chosen])} == {23}


def test_training_curve_is_the_log():
    columns = {
        name: np.array([1.0, 2.0, 3.0]) * k for k, name in enumerate(("epoch", "loss", "learning_rate"), 1)
    }
    figure = training_curve([TrainingLog("ncm", method_style(0), columns)])
    assert_has_data(figure)
    left, right = figure.axes
    np.testing.assert_array_equal(left.lines[0].get_ydata(), columns["loss"])
    np.testing.assert_array_equal(right.lines[0].get_ydata(), columns["learning_rate"])
    del columns["learning_rate"]
    assert len(training_curve([TrainingLog("ncm", method_style(0), columns)]).axes) == 1


def test_gates_draw_every_setting_and_ring_the_one_that_was_chosen():
    points = [
        CurvePoint(
            setting=i,
            overall_avg=60 - i,
            inc_avg=30 + 5 * i,
            harmonic_mean_avg=40 - (i - 2) ** 2,
            tuned=i == 3,  # not the best on these test images
            **{"rule": "constant", "base_avg": 70, "both": 50, "method": {}},
        )
        for i in range(5)
    ]
    figure = gates.gates(TradeOff(rules=[RuleCurve(name="constant", points=points[::-1])]), "sss")
    assert_has_data(figure)
    left, right = figure.axes
    np.testing.assert_array_equal(left.lines[0].get_xdata(), [30, 35, 40, 45, 50])
    np.testing.assert_array_equal(left.lines[0].get_ydata(), [60, 59, 58, 57, 56])
    ring = right.lines[1]
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (45, 39)
