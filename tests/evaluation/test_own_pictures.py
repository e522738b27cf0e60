"""`fairshot run --data PHOTOS`: own pictures, split once, kept beside the run, replayable."""

import json
import re
import shlex
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from fairshot.documents import load_json
from fairshot.errors import PicturesNotFound
from fairshot.evaluation.experiment import CommonOptions, load_pictures, split_of
from fairshot.evaluation.result import Result
from fairshot.methods import methods
from fairshot.recipes import load_recipe
from fairshot.studies import StudyOptions, compare
from fairshot.teaching import Store
from fairshot.tensor_files import write_tensors
from support.commands import fairshot

SMALL = [
    *("--set", "model.backbone=tiny", "--set", "model.size=16", "--set", "model.resize=16"),
    *("--set", "model.small_stem=false", "--set", "training.epochs=2", "--set", "training.batch=10"),
    *("--device", "cpu"),
]
TINY = [*SMALL, "--set", "method.sr_width=32"]
COLOURS = {"cyan": (0, 220, 220), "green": (20, 180, 30), "navy": (10, 10, 120), "red": (220, 20, 20)}
COLOURS |= {"white": (250, 250, 250), "yellow": (240, 230, 20)}


@pytest.fixture
def photos(tmp_path):
    """Six classes of twelve pictures of different sizes, one of them damaged."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "photos"
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True)
        for index in range(12):
            noise = rng.normal(0, 12, (20 + index, 30 - index, 3))
            pixels = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index}.png")
    (folder / "red" / "broken.jpg").write_bytes(b"no picture")
    return folder


def test_a_folder_of_pictures_is_split_learnt_and_replayed(photos, tmp_path):
    first = fairshot(tmp_path, "run", "--data", "photos", "--out", "one", *TINY)
    assert first.process.exitcode == 0, first.stderr
    assert "skipped red/broken.jpg" in first.stderr
    assert "sss photos training: " in first.stderr  # each line of progress names the folder
    log = (tmp_path / "one" / "log.txt").read_text()
    assert log.index("base session: ") < log.index("training: done")
    result = Result.read(tmp_path / "one")
    assert result.benchmark == "photos"
    assert sorted(result.class_names) == sorted(COLOURS)
    split = json.loads((tmp_path / "one" / "split.json").read_text())
    for listed in split["classes"]:
        assert not set(listed["train"]) & set(listed["test"])

    # Another seed draws another split, unless it is told to replay the first one.
    drawn = fairshot(tmp_path, "run", "--data", "photos", "--seed", "5", "--out", "two", *TINY)
    assert drawn.process.exitcode == 0, drawn.stderr
    assert json.loads((tmp_path / "two" / "split.json").read_text())["classes"] != split["classes"]
    command = ["run", "--data", "photos", "--seed", "5", "--split", "one", "--out", "three", *TINY]
    replayed = fairshot(tmp_path, *command)
    assert replayed.process.exitcode == 0, replayed.stderr
    assert json.loads((tmp_path / "three" / "split.json").read_text())["classes"] == split["classes"]
    assert Result.read(tmp_path / "three").class_names == result.class_names
    assert {Result.read(tmp_path / name).pictures for name in ("one", "two", "three")} == {split["pictures"]}

    other = fairshot(tmp_path, *command, "--set", "benchmark.shots=3", "--fresh")
    assert other.process.exitcode == 2
    assert "benchmark.shots: 3 was given; the split that is used again has 5" in other.stderr


def test_methods_are_compared_on_own_pictures_that_are_split_alike(photos, tmp_path):
    command = ("compare", "ncm", "sss", "--data", "photos", *SMALL)
    done = fairshot(tmp_path, *command)
    assert done.process.exitcode == 0, done.stderr
    runs = [tmp_path / "runs" / "compare-photos" / f"{name}-seed0" for name in ("ncm", "sss")]
    one, other = (json.loads((run / "split.json").read_text()) for run in runs)
    assert one["classes"] == other["classes"]
    assert {Result.read(run).pictures for run in runs} == {one["pictures"]}
    again = fairshot(tmp_path, *command)
    assert again.process.exitcode == 0, again.stderr
    assert again.stderr.count("finished already") == 2
    (photos / "cyan").rename(photos / "teal")
    changed = fairshot(tmp_path, *command)
    assert changed.process.exitcode == 2  # what was learnt from other pictures is no answer
    assert "finished already" not in changed.stderr
    both = fairshot(tmp_path, *command, "--benchmark", "doodles")
    assert both.process.exitcode == 2
    assert "own pictures are compared by themselves, but --benchmark doodles was given" in both.stderr


def test_every_method_runs_on_own_pictures(photos, tmp_path):
    small = [part for part in SMALL if "=" in part] + ["training.epochs=1"]
    found = compare(
        ["all"],
        tmp_path / "runs",
        ["folder"],
        (0,),
        overrides=small,
        options=StudyOptions("cpu", photos=photos),
    )
    found.check()
    assert {result.method for result in found.results.values()} == set(methods())
    assert len({str(result.class_names) for result in found.results.values()}) == 1


def test_a_comparison_says_once_what_was_not_run_and_why(photos, tmp_path):
    shutil.rmtree(photos / "red")
    (photos / "red").mkdir()
    refused = fairshot(tmp_path, "compare", "ncm", "sss", "--data", "photos", *SMALL)
    assert refused.process.exitcode == 2
    assert refused.stderr.count("too few usable images: red (0)") == 2  # once for each
    last = "not among the results, for the reasons above: ncm folder seed 0, sss folder seed 0"
    assert refused.stderr.rstrip().endswith(last)


def test_settings_and_gates_are_chosen_on_own_pictures_too(photos, tmp_path):
    few = ["--novel", "1", "--held-out", "2"]
    grid = ["--grid", "method.gamma=[0,0.2]"]
    small = ["--set", "benchmark.base_classes=4", "--set", "benchmark.way=1", "--set", "benchmark.shots=3"]
    tuned = fairshot(tmp_path, "tune", "folder/sss", "--data", "photos", *grid, *few, *small, *TINY)
    assert tuned.process.exitcode == 0, tuned.stderr
    assert len(load_json(tmp_path / "runs" / "tuning-photos-sss" / "trials.json")["trials"]) == 2
    ran = fairshot(tmp_path, "run", "--data", "photos", "--out", "one", *small, *TINY)
    assert ran.process.exitcode == 0, ran.stderr
    photos.rename(tmp_path / "moved")
    blind = fairshot(tmp_path, "tradeoff", "one", "--device", "cpu")
    assert blind.process.exitcode == 2
    assert f"the pictures of one were in {photos}" in blind.stderr
    assert "with --data" in blind.stderr
    drawn = fairshot(tmp_path, "tradeoff", "one", "--data", "moved", "--draws", "1", "--device", "cpu")
    assert drawn.process.exitcode == 0, drawn.stderr
    assert json.loads((tmp_path / "one" / "tradeoff.json").read_text())["rules"]
    advice = next(line for line in drawn.stdout.splitlines() if line.startswith("  fairshot run "))
    gated = fairshot(tmp_path, *shlex.split(advice)[1:], "--device", "cpu")
    assert gated.process.exitcode == 0, gated.stderr
    assert Result.read(tmp_path / "one-gate").class_names == Result.read(tmp_path / "one").class_names
    (tmp_path / "moved").rename(photos)
    poisoned = fairshot(tmp_path, "poison", "one", "--device", "cpu")  # which remembers where they are
    assert poisoned.process.exitcode == 0, poisoned.stderr
    assert re.search(r"^noise +10 +\d+\.\d\d ", poisoned.stdout, re.MULTILINE)
    assert max(map(len, poisoned.stdout.splitlines())) <= 80
    anew = ["run", "--data", "photos", "--out", "one", "--fresh", "--max-minutes", "0", *small, *TINY]
    assert fairshot(tmp_path, *anew).process.exitcode == 75
    left = {path.name for path in (tmp_path / "one").iterdir()} - {".lock"}
    assert left == {"checkpoints", "log.txt", "recipe.yaml", "split.json"}  # and no gate of the old network


def test_a_store_is_made_of_a_run_that_has_a_gate(photos, tmp_path):
    gate = ["--set", "method.gate=constant", "--set", "method.resistance=false"]
    ran = fairshot(tmp_path, "run", "--data", "photos", "--out", "one", *gate, *TINY)
    assert ran.process.exitcode == 0, ran.stderr
    made = fairshot(tmp_path, "new", "shop", "--from", "one")
    assert made.process.exitcode == 0, made.stderr
    refused = fairshot(tmp_path, "new", "shop", "--from", "nowhere")
    assert "shop exists already" in refused.stderr  # said before the run is read


def test_a_store_finds_the_pictures_of_its_run_or_is_refused(photos, tmp_path):
    ran = fairshot(tmp_path, "run", "--data", "photos", "--out", "one", *TINY)
    assert ran.process.exitcode == 0, ran.stderr
    made = fairshot(tmp_path, "new", "shop", "--from", "one")
    assert made.process.exitcode == 0, made.stderr
    later = Result.read(tmp_path / "one").class_names[4:]
    assert f"taught from the shots of the run's sessions: {', '.join(later)}\n" in made.stdout
    with Store(tmp_path / "shop") as store:
        assert {info.name for info in store.classes()} == set(COLOURS)
        assert all(store.thumbnails(info.name) for info in store.classes())
    photos.rename(tmp_path / "moved")
    for given, problem in [
        ([], f"the pictures of one were in {photos}"),
        (["--data", "nowhere"], "nowhere"),
    ]:
        refused = fairshot(tmp_path, "new", "other", "--from", "one", *given)
        assert refused.process.exitcode == 2
        assert problem in refused.stderr
        assert "With --without-images the store is made without them" in refused.stderr
        assert not (tmp_path / "other").exists()
    bare = fairshot(tmp_path, "new", "other", "--from", "one", "--without-images")
    assert bare.process.exitcode == 0, bare.stderr
    assert (
        f"in its sessions: {', '.join(later)}\nto add one: fairshot teach other NAME PHOTOS\n" in bare.stdout
    )
    with Store(tmp_path / "other") as store:
        assert store.classes()
        assert not any(store.thumbnails(info.name) for info in store.classes())
    elsewhere = fairshot(tmp_path, "new", "third", "--from", "one", "--data", "moved")
    assert elsewhere.process.exitcode == 0, elsewhere.stderr


@pytest.mark.parametrize("name", ["folder/ncm", "doodles/ncm"])
def test_a_run_on_own_pictures_goes_on_with_them_whatever_its_recipe_was_made_for(photos, tmp_path, name):
    recipe = load_recipe(name, ["benchmark.base_classes=4", "benchmark.way=1", "benchmark.sessions=2"])
    options = CommonOptions(photos=photos)
    stream, split = load_pictures(recipe, options)
    split.write(tmp_path)
    again, _ = load_pictures(recipe, replace(options, photos=None), split_of(tmp_path))
    assert again.benchmark == "photos"
    assert again.base.train.sha256() == stream.base.train.sha256()
    split.model_copy(update={"photos": None}).write(tmp_path)  # as earlier versions left it
    with pytest.raises(PicturesNotFound):
        load_pictures(recipe, replace(options, photos=None), split_of(tmp_path))


def test_a_base_session_is_loaded_with_its_images_and_no_others(photos, tmp_path):
    ran = fairshot(tmp_path, "run", "--data", "photos", "--out", "one", *TINY)
    assert ran.process.exitcode == 0, ran.stderr
    changed = tmp_path / "elsewhere" / "photos"
    shutil.copytree(photos, changed)
    shutil.copytree(photos / "red", photos / "amber")  # a split that is drawn now is another one
    loaded = ["--base", "one", "--set", "method.gamma=0.4", *TINY]
    for extra in ([], ["--fresh"]):
        done = fairshot(tmp_path, "run", "--data", "photos", "--out", "two", *loaded, *extra)
        assert done.process.exitcode == 0, done.stderr
        one, two = (load_file(tmp_path / run / "model.safetensors") for run in ("one", "two"))
        assert all(torch.equal(one[name], two[name]) for name in one)
        assert Result.read(tmp_path / "two").class_names == Result.read(tmp_path / "one").class_names

    split = json.loads((tmp_path / "one" / "split.json").read_text())
    Image.new("RGB", (30, 20)).save(changed / split["classes"][0]["train"][0])
    commands = [
        ["run", "--out", "three", *loaded],
        ["tradeoff", "one", "--novel", "1", "--held-out", "2", "--device", "cpu"],
        ["poison", "one", "--device", "cpu"],
    ]
    for command in commands:
        refused = fairshot(tmp_path, *command, "--data", "elsewhere/photos")
        assert refused.process.exitcode == 2, refused.stderr
        told = " ".join(refused.stderr.split())
        assert (
            "the base session of one was on other images than those found here: their pixels differ" in told
        )
        assert "of the classes" not in told  # which are the same
    assert not (tmp_path / "three").exists()
    assert not (tmp_path / "one" / "pseudo-novel" / "checkpoints").exists()


def test_of_a_base_session_that_noted_no_images_the_classes_are_compared(photos, tmp_path):
    ran = fairshot(tmp_path, "run", "--data", "photos", "--out", "one", *TINY)
    assert ran.process.exitcode == 0, ran.stderr
    model = tmp_path / "one" / "model.safetensors"
    write_tensors(model, load_file(model), {})
    done = fairshot(tmp_path, "run", "--data", "photos", "--base", "one", "--out", "two", *TINY)
    assert done.process.exitcode == 0, done.stderr
    split = json.loads((tmp_path / "one" / "split.json").read_text())
    classes = split["classes"]
    classes[0], classes[-1] = classes[-1], classes[0]
    del split["sha256"]  # as whoever changes a file by hand does
    (tmp_path / "other.json").write_text(json.dumps(split))
    other = ["--data", "photos", "--split", "other.json", "--out", "three", *TINY]
    refused = fairshot(tmp_path, "run", "--base", "one", *other)
    assert refused.process.exitcode == 2
    there, *_, here = Result.read(tmp_path / "one").class_names
    told = " ".join(refused.stderr.split())
    assert f"on other images than those found here: of the classes {there} there and {here} here" in told


def test_a_folder_that_is_refused_leaves_nothing(photos, tmp_path):
    refused = fairshot(tmp_path, "run", "--data", "photos", "--set", "benchmark.shots=12", *TINY)
    assert refused.process.exitcode == 2
    assert "too few usable images: cyan (12), green (12)" in refused.stderr
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith(".std")} == {"photos"}


def test_what_cannot_be_done_is_said(photos, tmp_path):
    for extra, said in [(["folder/sss"], "--data"), (["--split", "one"], "--split goes with --data")]:
        refused = fairshot(tmp_path, "run", *extra, "--device", "cpu")
        assert refused.process.exitcode == 2
        assert said in refused.stderr


def test_on_a_cpu_a_large_network_is_said_to_be_slow(photos, tmp_path):
    short = ["--device", "cpu", "--max-minutes", "0", "--set", "training.batch=4", "--set", "model.size=40"]
    large = fairshot(tmp_path, "run", "--data", "photos", "--out", "large", *short)
    assert large.process.exitcode == 75, large.stderr
    assert "resnet18 at 40 pixels is very slow to train on a CPU" in large.stderr
    assert "faster again: --set model.size=32 --set model.resize=36" in large.stderr
    small = fairshot(tmp_path, "run", "--data", "photos", "--out", "small", *short, *TINY[:2])
    assert small.process.exitcode == 75, small.stderr
    assert "slow" not in small.stderr
    assert (tmp_path / "small" / "recipe.yaml").is_file()
