"""`fairshot ablate`, `fairshot tradeoff` and `fairshot run --base`: many decisions on one base session."""

import hashlib
import json
import shlex

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fairshot.evaluation.result import Result
from fairshot.reporting.runs import read_run
from fairshot.studies.tradeoff import TradeOff
from support.commands import TINY, fairshot


def weights(run):
    return hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ablations")
    done = fairshot(folder, "ablate", "components", "doodles/sss", "--out", "components", *TINY)
    assert done.process.exitcode == 0, done.stderr
    return folder


def test_parts_are_added_one_by_one(folder):
    parts = ("intra", "inter", "sr", "resistance", "calibration")
    for count, name in enumerate(("baseline", *parts)):
        recipe = Result.read(folder / "components" / name).recipe["method"]
        assert [recipe[part] for part in parts] == [index < count for index in range(5)]
    hashes = {name: weights(folder / "components" / name) for name in ("baseline", *parts)}
    assert hashes["sr"] == hashes["resistance"] == hashes["calibration"]  # one training
    assert len(set(hashes.values())) == 4


def test_the_page_of_the_components_tells_what_lies_behind_them(folder):
    page = (folder / "components" / "ablation.md").read_text()
    assert page.count("| SSS") >= 6  # a line a row of table 2; the paper's are of CIFAR-100
    lines = {
        line.split("|")[1].strip(): line.split("|")[2:-1] for line in page.splitlines() if line[:2] == "| "
    }
    parts = {"intra": "Intra", "inter": "Inter", "sr": "SR", "resistance": "R", "calibration": "C"}
    for count, name in enumerate(("baseline", *parts)):
        label = f"SSS: {' + '.join(list(parts.values())[:count]) or 'baseline'}"
        run = folder / "components" / name
        result, features = Result.read(run), load_file(run / "features.safetensors")
        g, labels = features["g"].double().numpy(), features["labels"].numpy()
        occupied = [
            np.mean([sum(view) / np.linalg.norm(view) for view in image])
            for image, label in zip(g, labels, strict=True)
            if label < 6
        ]
        shown = [float(cell) for cell in lines[label]]
        last = result.metrics.sessions[-1]
        expected = [np.mean(occupied), result.novel_only[-1], last.misroute, last.base, last.inc]
        assert shown == pytest.approx(expected, abs=0.02)
    assert "What base classes lost (SSS: Intra + Inter + SR + R + C)" in page
    lost = [
        line
        for line in page.splitlines()
        if line.split("|")[1:2]
        and line.split("|")[1].strip() in Result.read(folder / "components" / "calibration").class_names
    ]
    assert len(lost) == 6


def test_a_finished_training_is_used_and_not_repeated(folder):
    command = ["ablate", "features", "doodles/sss", "--out", "loaded", "--base", "components/sr", *TINY]
    done = fairshot(folder, *command)
    assert done.process.exitcode == 0, done.stderr
    assert weights(folder / "loaded" / "pre") == weights(folder / "components" / "sr")
    assert not list((folder / "loaded").glob("*/checkpoints/base/*"))
    assert Result.read(folder / "loaded" / "pre").base == "../components/sr"  # from the folder of the run
    assert Result.read(folder / "components" / "sr").base is None
    page = (folder / "loaded" / "ablation.md").read_text()
    assert "Decisions by two kinds of features" in page
    assert page.count("SSS") >= 18  # six decisions in three tables
    again = fairshot(folder, *command, "--fresh")
    assert again.process.exitcode == 0, again.stderr
    assert "is finished already" not in again.stderr


def test_each_decision_by_the_features_is_on_the_same_base_session(folder):
    command = ["ablate", "features", "doodles/sss", "--out", "features", *TINY]
    done = fairshot(folder, *command)
    assert done.process.exitcode == 0, done.stderr
    runs = sorted(path for path in (folder / "features").iterdir() if (path / "result.json").is_file())
    assert len({weights(run) for run in runs}) == 1
    confusions = {run.name: Result.read(run).confusions for run in runs}
    assert len(confusions) == 6
    assert len({json.dumps(matrices) for matrices in confusions.values()}) >= 4  # and they do differ


def test_another_training_is_not_loaded(folder):
    base = ["--base", "components/sr", "--out", "other"]
    refused = fairshot(folder, "run", "doodles/sss", *base, "--seed", "3", *TINY)
    assert refused.process.exitcode == 2
    assert "another recipe: seed is 0 there and 3 here;" in refused.stderr
    assert not (folder / "other").exists()  # nothing that the corrected command would stumble over


def test_a_run_is_not_cleared_that_gives_the_base_session(folder):
    kept = weights(folder / "components" / "sr")
    command = ["run", "components/sr/recipe.yaml", "--out", "components/sr", "--base", "components/sr"]
    refused = fairshot(folder, *command, "--fresh", "--device", "cpu")
    assert refused.process.exitcode == 2
    assert "components/sr gives the base session and cannot be run afresh" in refused.stderr
    assert weights(folder / "components" / "sr") == kept


@pytest.mark.parametrize("base", ["sr", "calibration", "intra"])
def test_rows_are_refused_before_the_first_is_run(folder, base):
    runs = sorted((folder / "components").glob("*/result.json"))
    before = [run.stat().st_mtime_ns for run in runs]
    command = ["ablate", "components", "doodles/sss", "--out", "components", "--base", f"components/{base}"]
    refused = fairshot(folder, *command, "--fresh", *TINY)
    assert refused.process.exitcode == 2
    assert len(before) == 6
    assert [run.stat().st_mtime_ns for run in runs if run.exists()] == before


PSEUDO = ["--novel", "2", "--held-out", "20", "--draws", "2", "--device", "cpu"]


@pytest.fixture(scope="module")
def drawn(folder):
    done = fairshot(folder, "tradeoff", "components/resistance", *PSEUDO)
    assert done.process.exitcode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def curves(folder, drawn):
    return json.loads((folder / "components" / "resistance" / "tradeoff.json").read_text())["rules"]


def test_the_tradeoff_of_a_run_marks_what_was_chosen_without_its_test_images(folder, curves):
    run = folder / "components" / "resistance"
    trials = json.loads((run / "pseudo-novel" / "trials.json").read_text())["trials"]
    assert len(curves) == 10
    for curve in curves:
        chosen = [point for point in curve["points"] if point["tuned"]]
        assert len(chosen) == 1
        tried = [trial for trial in trials if trial["rule"] == curve["name"]]
        best = max(tried, key=lambda trial: (trial["overall_avg"] + trial["harmonic_mean_avg"]) / 2)
        assert chosen[0]["method"] == best["method"]
        assert f"| {curve['name']} |" in (run / "tradeoff.md").read_text()
    resistance = next(curve for curve in curves if curve["name"] == "Resistance")
    result = Result.read(run)
    at_run = next(p for p in resistance["points"] if p["setting"] == result.recipe["method"]["gamma"])
    assert at_run["overall_avg"] == pytest.approx(result.metrics.overall_avg)
    assert "no test image is read" in (run / "pseudo-novel" / "log.txt").read_text()


def test_no_cell_of_the_tradeoff_is_broken_in_80_columns(drawn, curves):
    table = [line for line in drawn.stdout.splitlines() if line.startswith(("│", "┃"))]
    assert len(table) > 10
    assert len(table[0]) <= 80


def rows(drawn):
    """Return the cells of the table that the trade-off printed."""
    lines = [line for line in drawn.stdout.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_the_terminal_lists_what_was_chosen_by_its_score_there_and_not_on_test_images(folder, drawn, curves):
    assert "on test images" in drawn.stdout
    tried = folder / "components" / "resistance" / "pseudo-novel" / "trials.json"
    trials = json.loads(tried.read_text())["trials"]
    best = {c["name"]: max(t["both"] for t in trials if t["rule"] == c["name"]) for c in curves}
    marked = [cells for cells in rows(drawn) if cells[0].startswith("> ")]
    names = [cells[0].removeprefix("> ").removesuffix(" of the run") for cells in marked]
    assert names == sorted(best, key=best.__getitem__, reverse=True)
    others = [cells[0] for cells in rows(drawn) if cells not in marked]
    assert others in ([], ["Resistance of the run"])


def test_the_file_of_the_tradeoff_holds_every_point(folder, drawn, curves):
    points = [point for curve in curves for point in curve["points"]]
    file = folder / "components" / "resistance" / "tradeoff.md"
    assert f"all {len(points)} points: {file.relative_to(folder)}\n" in drawn.stdout
    written = file.read_text().partition("All strengths")[2]
    for point in points:
        line = f"| {point['rule']} | {point['setting']:g} | {point['overall_avg']:.2f} |"
        assert written.count(line) == 1


@pytest.mark.parametrize("gamma", ["0.25", "0.4"])  # between those that are tried, and one of them
def test_the_tradeoff_shows_resistance_as_the_run_has_it(folder, curves, gamma):
    name = f"gamma {gamma}"
    base = ["--base", "components/resistance", "--set", f"method.gamma={gamma}", "--out", name]
    done = fairshot(folder, "run", "doodles/sss", *base, *TINY)
    assert done.process.exitcode == 0, done.stderr
    pseudo = ["--pseudo", "components/resistance/pseudo-novel", *PSEUDO]
    drawn = fairshot(folder, "tradeoff", name, *pseudo)
    assert drawn.process.exitcode == 0, drawn.stderr
    (own,) = [cells for cells in rows(drawn) if cells[0].endswith("Resistance of the run")]
    assert own[1:3] == [gamma, f"{Result.read(folder / name).metrics.overall_avg:.2f}"]
    resistance = json.loads((folder / name / "tradeoff.json").read_text())["rules"][0]
    assert resistance["name"] == "Resistance"
    tried = [point["setting"] for point in resistance["points"]]
    assert tried == sorted({0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, float(gamma)})


def test_the_tradeoff_shows_no_resistance_of_a_run_that_has_a_gate(folder, curves):
    gate = ["--set", "method.gate=constant", "--set", "method.gate_strength=0.05", "--out", "with-gate"]
    done = fairshot(folder, "run", "doodles/sss", "--base", "components/resistance", *TINY, *gate)
    assert done.process.exitcode == 0, done.stderr
    pseudo = ["--pseudo", "components/resistance/pseudo-novel", *PSEUDO]
    drawn = fairshot(folder, "tradeoff", "with-gate", *pseudo)
    assert drawn.process.exitcode == 0, drawn.stderr
    assert len(rows(drawn)) == len(curves)
    assert "of the run" not in drawn.stdout


def test_what_the_tradeoff_chose_is_run_on_the_same_base_session(folder, curves):
    point = next(p for p in curves[-1]["points"] if p["tuned"])
    assert point["method"]["class_covariance_share"] > 0
    gate = [part for key, value in point["method"].items() for part in ("--set", f"method.{key}={value}")]
    base = ["--base", "components/resistance", "--out", "gated"]
    done = fairshot(folder, "run", "doodles/sss", *base, *TINY, *gate)
    assert done.process.exitcode == 0, done.stderr
    result = Result.read(folder / "gated")
    assert result.metrics.overall_avg == pytest.approx(point["overall_avg"])
    assert result.metrics.harmonic_mean_avg == pytest.approx(point["harmonic_mean_avg"])


def test_the_command_that_the_tradeoff_prints_runs_its_choice(folder, drawn, curves):
    line = next(line for line in drawn.stdout.splitlines() if line.startswith("  fairshot run "))
    done = fairshot(folder, *shlex.split(line)[1:], "--device", "cpu")
    assert done.process.exitcode == 0, done.stderr
    found = Result.read(folder / "components" / "resistance-gate").metrics
    chosen = [p for curve in curves for p in curve["points"] if p["tuned"]]
    pairs = [(p["overall_avg"], p["harmonic_mean_avg"]) for p in chosen]
    assert any(pytest.approx(pair) == (found.overall_avg, found.harmonic_mean_avg) for pair in pairs)


def test_gates_are_not_chosen_on_images_that_were_trained_on(folder, curves):
    chosen = folder / "components" / "resistance" / "tradeoff.json"
    before = chosen.read_bytes()
    for extra in (["--novel", "4"], ["--held-out", "40"]):
        refused = fairshot(folder, "tradeoff", "components/resistance", *PSEUDO, *extra)
        assert refused.process.exitcode == 2
        assert "split1 holds" in refused.stderr  # another training: fewer images take more epochs
    assert chosen.read_bytes() == before


def test_gates_are_not_tried_for_a_run_without_its_weights(folder, tmp_path):
    kept = folder / "components" / "resistance"
    for name in ("recipe.yaml", "result.json"):
        (tmp_path / name).write_bytes((kept / name).read_bytes())
    refused = fairshot(folder, "tradeoff", str(tmp_path), "--device", "cpu")
    assert refused.process.exitcode == 2
    assert "its weights were not kept" in " ".join(refused.stderr.split())
    assert not (tmp_path / "pseudo-novel").exists()


def test_a_gate_between_features_as_they_are_is_run_and_kept(folder):
    gate = ["--set", "method.gate=constant", "--set", "method.gate_strength=0.03", "--out", "constant"]
    done = fairshot(folder, "run", "doodles/sss", "--base", "components/resistance", *TINY, *gate)
    assert done.process.exitcode == 0, done.stderr
    kept = load_file(folder / "constant" / "model.safetensors")
    assert torch.equal(kept["classifier.gate.prototypes"], kept["classifier.h.means"])


def test_runs_of_several_seeds_share_one_pseudo_novel_training(folder, curves):
    done = fairshot(folder, "run", "doodles/sss", "--seed", "1", "--out", "seed1", *TINY)
    assert done.process.exitcode == 0, done.stderr
    shared = ["--pseudo", "components/resistance/pseudo-novel"]
    done = fairshot(folder, "tradeoff", "seed1", *shared, *PSEUDO, "--root", "my data")
    assert done.process.exitcode == 0, done.stderr
    assert " --root 'my data' " in done.stdout  # the command that runs the choice says so too
    found = json.loads((folder / "seed1" / "tradeoff.json").read_text())
    first = json.loads((folder / "components" / "resistance" / "tradeoff.json").read_text())
    assert found["chosen_on_pseudo_novel"] == first["chosen_on_pseudo_novel"]
    assert found["rules"] != first["rules"]
    mirrored = ["--base", "seed1", "--seed", "1", "--set", "method.mirror=true", "--out", "mirrored"]
    done = fairshot(folder, "run", "doodles/sss", *mirrored, *TINY)
    assert done.process.exitcode == 0, done.stderr
    done = fairshot(folder, "tradeoff", "mirrored", *shared, *PSEUDO)
    assert done.process.exitcode == 0, done.stderr
    with_mirror = json.loads((folder / "mirrored" / "tradeoff-mirror.json").read_text())
    assert with_mirror["chosen_on_pseudo_novel"] != first["chosen_on_pseudo_novel"]
    refused = fairshot(folder, "tradeoff", "components/inter", *shared, *PSEUDO)
    assert refused.process.exitcode == 2
    assert "another recipe" in refused.stderr


def test_curves_with_mirror_images_stand_beside_those_without(folder, curves):
    run = folder / "components" / "resistance"
    before = (run / "tradeoff.json").read_bytes()
    done = fairshot(folder, "tradeoff", "components/resistance", *PSEUDO, "--mirror")
    assert done.process.exitcode == 0, done.stderr
    assert "points: components/resistance/tradeoff-mirror.md" in done.stdout
    assert "method.mirror=true" in done.stdout
    assert (run / "tradeoff.json").read_bytes() == before
    plain, mirrored = read_run(run).trade_offs
    assert (plain.mirror, mirrored.mirror) == (False, True)
    assert plain.rules != mirrored.rules


def test_networks_for_the_gates_of_several_methods_are_trained_at_once(folder):
    small = [word for word in TINY if word != "method.sr_width=32"]
    small.pop(small.index("--device") - 1)
    done = fairshot(folder, "compare", "bidist", "ncm", "teen", "--out", "methods", *small)
    assert done.process.exitcode == 0, done.stderr
    done = fairshot(folder, "tradeoff", "methods", "--parallel", "2", *PSEUDO)
    assert done.process.exitcode == 0, done.stderr
    for name in ("ncm", "teen"):
        assert done.stderr.count(f"{name} pseudo-novel split 1: finished; runs still to come") == 1
        assert TradeOff.read(folder / "methods" / f"{name}-seed0").method == name
    assert "left out: methods/bidist-seed0 is a run of bidist" in " ".join(done.stderr.split())
    assert not (folder / "methods" / "pseudo-novel" / "bidist").exists()


def test_a_gate_is_chosen_over_several_splits_with_one_training_each(folder):
    splits = ["--pseudo", "splits", "--splits", "2"]
    done = fairshot(folder, "tradeoff", "components/sr", *splits, *PSEUDO)
    assert done.process.exitcode == 0, done.stderr
    results = [Result.read(folder / "splits" / name) for name in ("split1", "split2")]
    assert [result.seed for result in results] == [0, 1]
    assert results[0].base_names != results[1].base_names
    trials = json.loads((folder / "splits" / "trials.json").read_text())["trials"]
    for chosen in json.loads((folder / "components" / "sr" / "tradeoff.json").read_text())[
        "chosen_on_pseudo_novel"
    ]:
        assert chosen["both"] == max(each["both"] for each in trials if each["rule"] == chosen["rule"])
