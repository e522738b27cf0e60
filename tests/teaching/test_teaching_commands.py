"""The commands around a store, from a trained run to an answer, as a person types them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import fairshot as fairshot_package
from fairshot import teaching
from fairshot.benchmarks import load_stream
from fairshot.classifiers.similarity import directions
from fairshot.cli import app
from fairshot.cli.advice import advice
from fairshot.errors import NoRun, UserError
from fairshot.evaluation.experiment import RunOptions, run
from fairshot.methods.sss import SSS
from fairshot.models.errors import UnknownBackbone, UnusableWeights
from fairshot.models.pixels import DevicePictures
from fairshot.recipes import load_recipe
from fairshot.teaching import Store, errors
from fairshot.teaching.confidence import Confidence, Logistic
from fairshot.teaching.evaluating import LabelledFeatures, evaluate, read_folder
from fairshot.teaching.held_out import trials_of
from fairshot.teaching.network import Network
from fairshot.teaching.onnx_export import export_onnx
from fairshot.teaching.photos import Preparation, as_drawing
from fairshot.training.hardware import choose_hardware
from support.stores import drawings, make_store

SMALL = [
    "benchmark.base_classes=5",
    "benchmark.way=2",
    "benchmark.sessions=3",
    "training.epochs=1",
    "training.warmup_epochs=0",
    "method.sr_width=32",
    "method.resistance=true",
    "method.drift=0.1",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a small run."""
    folder = tmp_path_factory.mktemp("run")
    run(load_recipe("doodles/sss", SMALL), RunOptions(folder, choose_hardware("cpu")))
    return folder


@pytest.fixture(scope="module")
def doodles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawings")
    assert "1040 drawings" in fairshot("doodles", folder)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, trained: Path) -> Path:
    """Make a store from the run."""
    folder = tmp_path_factory.mktemp("made") / "store"
    fairshot("new", folder, "--from", trained)
    return folder


@pytest.fixture
def store(tmp_path: Path, made: Path) -> Path:
    shutil.copytree(made, tmp_path / "store")
    return tmp_path / "store"


def fairshot(*arguments: object) -> str:
    """Run a command that must succeed."""
    outcome = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.output


def test_of_what_is_unknown_nobody_is_sure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Image.fromarray(drawings("bee", 1)[0][..., 0]).save("bee.png")
    make_store(Path("shop")).close()
    (known,) = json.loads(fairshot("predict", "shop", "bee.png", "--json"))
    name, share = known["top"][0]["name"], f"{known['confidence']:.0%}"
    assert known["sentence"] == f"{name}, {share} sure"
    assert f"bee.png  {name}, {share} sure  similar: {name} " in fairshot("predict", "shop", "bee.png")
    with Store(Path("shop")) as opened:
        opened.set_confidence(Confidence(threshold=2, automatic=False))
    (unknown,) = json.loads(fairshot("predict", "shop", "bee.png", "--json"))
    assert unknown == known | {"answer": None, "sentence": f"unknown (perhaps {name}, {share})"}
    told = fairshot("predict", "shop", "bee.png")
    assert f"bee.png  unknown (perhaps {name}, {share})  similar: {name} " in told


def test_from_a_run_to_answers_and_back(store: Path, doodles: Path) -> None:
    teach, test = doodles / "teach", doodles / "test"
    assert "would be taught: umbrella: 5 photos, closest to" in fairshot(
        "teach", store, "umbrella", teach / "umbrella", "--dry-run"
    )
    fairshot("teach", store, "umbrella", teach / "umbrella")
    fairshot("teach", store, "shoe", *sorted((teach / "shoe").iterdir()))
    answers = json.loads(fairshot("predict", store, test / "umbrella", "--json", "--top", 3))
    assert len(answers) == 12
    assert all(len(answer["top"]) == 3 and 0 <= answer["confidence"] <= 1 for answer in answers)
    assert "umbrella/01.png" in fairshot("predict", store, test / "umbrella" / "01.png")
    fairshot("rename", store, "shoe", "boot")
    fairshot("merge", store, "boot", "umbrella")
    fairshot("forget", store, "umbrella")
    names = [info["name"] for info in json.loads(fairshot("classes", store, "--json"))]
    assert len(names) == 5
    for done in ("forget umbrella", "merge boot into umbrella", "rename shoe to boot"):
        assert done in fairshot("undo", store)
    kinds = [event["kind"] for event in json.loads(fairshot("history", store, "--json"))]
    assert kinds == ["undo"] * 3 + ["forget", "merge", "rename", "teach", "teach", "new"]
    assert "umbrella" in fairshot("classes", store)
    assert "(undone)" in fairshot("history", store)


RULES = {
    "as the paper": [],
    "constant": ["method.gate=constant", "method.gate_strength=0.05"],
    "whitened left out, mirrored": [
        *("method.mirror=true", "method.corner_crops=0.9", "method.whitening=true"),
        *("method.gate=left_out", "method.gate_strength=0.6"),
        "method.shrinkage=2.0",
    ],
    "class covariance unbiased": [
        *("method.whitening=true", "method.class_covariance_share=0.3"),
        *("method.gate=unbiased", "method.gate_strength=1.0", "method.resistance=false"),
    ],
    "pre": ["method.decision=pre"],
    "anomaly detection": ["method.decision=anomaly_detection"],
}


@pytest.mark.parametrize("changes", RULES.values(), ids=RULES)
def test_store_answers_as_its_run_to_the_bit(tmp_path: Path, trained: Path, changes: list[str]) -> None:
    """Scores of the run's test images after its last session; classes are matched by name."""
    recipe = load_recipe(str(trained / "recipe.yaml"), changes)
    result = run(recipe, RunOptions(tmp_path / "run", choose_hardware("cpu"), base=trained))
    fairshot("new", tmp_path / "store", "--from", tmp_path / "run", "--sessions")
    stream = load_stream("doodles", recipe.benchmark)
    method = SSS(recipe.method, recipe.model, 1, 5)
    method.restore(load_file(tmp_path / "run" / "model.safetensors"))
    for session in stream.sessions[1:]:
        method.learn(session.train)
    test = stream.seen_test(3)
    expected = method.scores(method.embed(test.pictures))
    with Store(tmp_path / "store") as store:
        snapshot = store.snapshot()
        columns = [snapshot.names.index(name) for name in stream.class_names]
        found = snapshot.classifier.decide(store.network.embed(test.pictures)).scores[:, columns]
        answers = store.predict(test.pictures)
    assert torch.equal(found, expected)
    assert [each.top[0].name for each in answers] == [stream.class_names[c] for c in expected.argmax(1)]
    assert result is not None
    accuracy = (found.argmax(1) == torch.from_numpy(test.labels)).double().mean()
    assert 100 * float(accuracy) == pytest.approx(result.metrics.last)


def test_store_calibrates_as_its_run_would(trained: Path) -> None:
    chosen = load_recipe(str(trained / "recipe.yaml")).method.model_dump()
    settings = teaching.from_run(trained).classifier.settings.model_dump()
    assert settings == {name: chosen[name] for name in settings} | {"bounded": True}


def test_hidden_files_are_no_photos(tmp_path: Path) -> None:
    make_store(tmp_path / "store").close()
    (tmp_path / "photos").mkdir()
    Image.fromarray(drawings("ant", 1)[0][:, :, 0]).save(tmp_path / "photos" / "ant.png")
    (tmp_path / "photos" / "._ant.png").write_bytes(b"what a file manager left here")
    assert len(json.loads(fairshot("predict", tmp_path / "store", tmp_path / "photos", "--json"))) == 1


def test_files_that_cannot_be_read_are_named_and_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_store(Path("store")).close()
    folder = Path("photos/yak")
    folder.mkdir(parents=True)
    for name, image in zip(("1.png", "a long name.png", "3.png"), drawings("yak", 3), strict=True):
        Image.fromarray(image[:, :, 0]).save(folder / name)
    (folder / "2.png").write_bytes(b"no picture")
    skipped = "skipped photos/yak/2.png: this file cannot be read as an image (it is damaged, or none of JPEG"
    told = fairshot("teach", "store", "yak", folder)
    assert skipped in told
    assert "yak: 3 photos" in told
    for command in (["predict", "store", folder], ["adapt", "store", folder]):
        assert skipped in fairshot(*command)
    assert skipped.removeprefix("skipped ") in fairshot("evaluate", "store", "photos")
    lines = [line for line in fairshot("predict", "store", folder).splitlines() if "  similar: " in line]
    assert len(lines) == 3
    assert len({line.index(",") for line in lines} | {line.index("  similar:") for line in lines}) == 2
    refused = CliRunner().invoke(app, ["predict", "store", str(folder / "2.png")])
    assert str(refused.exception).startswith("photos/yak/2.png: this file cannot be read")
    deeper = CliRunner().invoke(app, ["predict", "store", "photos"])
    assert str(deeper.exception).startswith("photos holds no image files itself, but 1 of its sub-folders")


@pytest.mark.parametrize("recipe_name", ["folder/sss", "doodles/sss"])
def test_store_from_a_run_on_own_pictures(tmp_path: Path, recipe_name: str) -> None:
    for number in range(5):
        (tmp_path / "photos" / f"class {number}").mkdir(parents=True)
        for index, image in enumerate(drawings(f"class {number}", 9, 3)):
            path = tmp_path / "photos" / f"class {number}" / f"{index}.png"
            Image.fromarray(image.repeat(6, 0).repeat(6, 1)).save(path)
    changes = ["training.epochs=1", "model.backbone=tiny", "model.small_stem=false", "model.size=16"]
    recipe = load_recipe(recipe_name, [*changes, "model.resize=null", "method.sr_width=16"])
    run(recipe, RunOptions(tmp_path / "run", choose_hardware("cpu"), photos=tmp_path / "photos"))
    fairshot("new", tmp_path / "blind", "--from", tmp_path / "run", "--without-images")
    fairshot("new", tmp_path / "store", "--from", tmp_path / "run")
    with Store(tmp_path / "blind") as blind, Store(tmp_path / "store") as store:
        base = [info.name for info in store.classes() if info.base]
        assert base == blind.snapshot().names
        assert sorted(store.snapshot().names) == [f"class {number}" for number in range(5)]
        assert not blind.base_samples().classes
        assert store.base_samples().classes
        for each in (blind, store):
            assert each.network.preparation == Preparation(3, 32, drawing_side=None)  # as the run did


def test_a_new_store_tells_how_far_it_is(tmp_path: Path, trained: Path) -> None:
    told = fairshot("new", tmp_path / "store", "--from", trained)
    for work in (
        "embedding samples",
        "embedding shots",
        "embedding",
        "filling in base classes",
        "fitting confidence",
    ):
        assert told.count(f"new store {work}: done in") == 1


def test_a_new_store_says_which_classes_of_the_run_it_has(tmp_path: Path, trained: Path) -> None:
    names = load_stream("doodles", load_recipe(str(trained / "recipe.yaml")).benchmark).class_names
    later = ", ".join(names[5:])
    told = fairshot("new", tmp_path / "base", "--from", trained)
    assert f"left out, because the run learnt them in its sessions: {later}\n" in told
    assert f"to add one: fairshot teach {tmp_path / 'base'} NAME PHOTOS, or make the store with" in told
    told = fairshot("new", tmp_path / "all", "--from", trained, "--sessions")
    assert f"taught from the shots of the run's sessions: {later}\n" in told
    assert "left out" not in told
    with Store(tmp_path / "all") as store, Store(tmp_path / "base") as fewer:
        assert [info.name for info in store.classes() if info.base] == list(names[:5])
        assert {info.name: info.photos for info in store.classes() if not info.base} == dict.fromkeys(
            names[5:], 5
        )
        for _ in names[5:]:
            store.undo()
        assert store.digest() == fewer.digest()
    refused = CliRunner().invoke(
        app, ["new", str(tmp_path / "no"), "--from", str(trained), "--sessions", "--without-images"]
    )
    assert str(refused.exception) == "give either --sessions or --without-images"


def test_a_store_of_another_method_says_how_it_answers(tmp_path: Path, trained: Path) -> None:
    ours = "answers by nearest class means, not by SSS"
    changes = [change for change in SMALL if not change.startswith("method.")]
    run(load_recipe("doodles/ncm", changes), RunOptions(tmp_path / "run", choose_hardware("cpu")))
    assert f"the run is of ncm: the store {ours}" in fairshot(
        "new", tmp_path / "a", "--from", tmp_path / "run"
    )
    assert ours not in fairshot("new", tmp_path / "b", "--from", trained, "--without-images")


def test_images_of_base_classes_are_embedded_once(
    tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded, embed = [], Network.embed
    monkeypatch.setattr(
        Network, "embed", lambda self, pictures, *_: embedded.append(len(pictures)) or embed(self, pictures)
    )
    fairshot("new", tmp_path / "store", "--from", trained)
    assert sum(embedded) == 5 * 10 + 65 + 3 * 2 * 5  # samples, test images, shots of the sessions


def test_a_folder_that_is_no_run_names_the_runs_there(tmp_path: Path) -> None:
    def advised(*command: object) -> str:
        refused = CliRunner().invoke(app, list(map(str, command))).exception
        assert isinstance(refused, NoRun)
        return advice(refused)

    for number in range(7):
        (tmp_path / "runs" / f"seed{number}").mkdir(parents=True)
        (tmp_path / "runs" / f"seed{number}" / "result.json").write_bytes(b"{}")
    runs = ", ".join(str(tmp_path / "runs" / f"seed{number}") for number in range(5))
    new = ("new", tmp_path / "store", "--from")
    for given in (tmp_path / "runs", tmp_path / "runs" / "sed1"):
        for command in (new, ("poison",)):
            assert advised(*command, given) == f"; finished runs are {runs} and 2 more"
    (tmp_path / "runs" / "seed6" / "result.json").write_bytes(b'{"method": "sss"}')
    assert f"finished runs are {tmp_path / 'runs' / 'seed6'}, " in advised(*new, tmp_path / "runs")
    assert "finished runs" not in advised(*new, tmp_path / "a" / "b")


def test_confidence_is_chosen_on_held_out_images(store: Path, doodles: Path) -> None:
    with Store(store) as opened:
        chosen = opened.snapshot().confidence
        assert chosen.source.startswith("65 test images of base classes, and 30 photos of further classes")
        assert 0 < chosen.threshold < 1
        labelled = read_folder(opened, doodles / "test")
        rows = [row for row, name in enumerate(labelled.names) if name in opened.snapshot().names]
        features = {key: value[rows] for key, value in labelled.features.items()}
        known = evaluate(opened, LabelledFeatures([labelled.names[row] for row in rows], features))
        everything = evaluate(opened, labelled)
    assert known.auroc is None
    assert known.unknown_images == 0
    assert known.taught_accuracy is None
    assert everything.unknown_images == 65 * 12
    assert everything.auroc is not None
    assert everything.accuracy == known.accuracy
    assert sum(count for count, _ in everything.by_class.values()) == 60


def test_evaluation_of_known_answers(tmp_path: Path) -> None:
    """Each figure against a count by hand."""
    store = make_store(tmp_path / "store")
    store.teach("yak", drawings("yak", 3))
    judge = Logistic(transferable=(-9.0, 10.0, 3.0, 0, 0, 0), specific=(-4.0, 5.0, 1.0, 0.1, 0, 0))
    store.set_confidence(Confidence(known=judge, threshold=0.6, automatic=False))
    shown = {"ant": drawings("sample of ant", 4), "yak": drawings("yak", 5), "cow": drawings("yak", 7)[5:]}
    shown["yeti"] = drawings("something else", 6)
    for name, images in shown.items():
        (tmp_path / "images" / name).mkdir(parents=True)
        for index, image in enumerate(images):
            Image.fromarray(image[:, :, 0]).save(tmp_path / "images" / name / f"{index}.png")
    measured = evaluate(store, read_folder(store, tmp_path / "images"), rejection_rate=0.25)
    found = {name: store.predict(images, top=1) for name, images in shown.items()}
    right = {name: [each.top[0].name == name for each in answers] for name, answers in found.items()}
    known = [
        (each.confidence, ok)
        for name in ("ant", "cow", "yak")
        for each, ok in zip(found[name], right[name], strict=True)
    ]
    of_known = [each.p_known for name in ("ant", "cow", "yak") for each in found[name]]
    of_unknown = [each.p_known for each in found["yeti"]]
    assert measured.images == 17
    assert measured.unknown_images == 6
    assert measured.accuracy == pytest.approx(sum(ok for _, ok in known) / 11)
    assert measured.base_accuracy == pytest.approx((sum(right["ant"]) + sum(right["cow"])) / 6)
    assert measured.taught_accuracy == pytest.approx(sum(right["yak"]) / 5)
    assert measured.unknown_found == pytest.approx(sum(value < 0.6 for value in of_unknown) / 6)
    assert measured.known_refused == pytest.approx(sum(value < 0.6 for value in of_known) / 11)
    pairs = [(k > u) + (k == u) / 2 for k in of_known for u in of_unknown]
    assert measured.auroc == pytest.approx(sum(pairs) / len(pairs), abs=1e-6)
    surest = sorted(known, key=lambda pair: -pair[0])[: 11 - 2]
    assert measured.accuracy_after_rejection == pytest.approx(sum(ok for _, ok in surest) / 9)
    everything = known + [(each.confidence, False) for each in found["yeti"]]
    gaps = [0.0] * 10
    for index, (sure, ok) in enumerate(everything):
        gaps[min(int(10 * sure), 9)] += (sure - ok) / (11 if index < 11 else 6)
    assert measured.calibration_error == pytest.approx(sum(map(abs, gaps)) / 2)
    assert measured.by_class == {name: (len(right[name]), sum(right[name])) for name in ("ant", "cow", "yak")}


def test_drawings_on_paper_become_doodles(doodles: Path) -> None:
    """A large drawing, dark on light and anywhere on its sheet, is the small one it was made of."""
    path = doodles / "test" / "umbrella" / "01.png"
    ink = 255 - np.asarray(Image.open(path))
    assert np.array_equal(as_drawing(np.asarray(Image.open(path))[:, :, None], 28)[:, :, 0], ink)
    sheet = np.full((400, 500), 255, np.uint8)
    sheet[70:350, 130:410] = 255 - ink.repeat(10, 0).repeat(10, 1)
    small = as_drawing(sheet[:, :, None], 28)[:, :, 0]
    assert small.shape == (28, 28)
    assert np.corrcoef(small.ravel(), ink.ravel())[0, 1] > 0.95
    assert not as_drawing(np.full((50, 60, 1), 240, np.uint8), 28).any()  # an empty sheet


def test_threshold_can_be_chosen_on_own_images_and_undone(store: Path, doodles: Path) -> None:
    fairshot("teach", store, "umbrella", doodles / "teach" / "umbrella")
    with Store(store) as opened:
        before = opened.snapshot().confidence
        choosing, measuring = read_folder(opened, doodles / "test").halves()
    assert len(choosing.names) == len(measuring.names)
    assert set(choosing.names) == set(measuring.names)
    output = fairshot("evaluate", store, doodles / "test", "--choose-threshold", "--keep", 0.5, "--json")
    assert "chosen on every second image; the figures are of the others" in output
    told = json.loads(output[output.index("{") :])
    with Store(store) as opened:
        snapshot, measured = opened.snapshot(), evaluate(opened, measuring)
        labels = torch.tensor(
            [snapshot.names.index(name) if name in snapshot.names else -1 for name in choosing.names]
        )
        fitted = Confidence.fit(trials_of(snapshot.classifier, choosing.features, labels), "", keep=0.5)
    assert fitted.model_dump(exclude={"source"}) == snapshot.confidence.model_dump(exclude={"source"})
    assert told["images"] == measured.images == len(measuring.names)
    assert told["known_refused"] == measured.known_refused
    assert 0.3 < told["known_refused"] < 0.7
    fairshot("undo", store)
    with Store(store) as opened:
        assert opened.snapshot().confidence == before


def test_a_threshold_is_not_chosen_on_a_handful_of_images(tmp_path: Path) -> None:
    make_store(tmp_path / "store").close()
    (tmp_path / "photos" / "ant").mkdir(parents=True)
    for index, image in enumerate(drawings("ant", 38)):
        Image.fromarray(image[:, :, 0]).save(tmp_path / "photos" / "ant" / f"{index:02}.png")
    arguments = ["evaluate", str(tmp_path / "store"), str(tmp_path / "photos"), "--choose-threshold"]
    refused = CliRunner().invoke(app, arguments).exception
    assert isinstance(refused, errors.TooFewHeldOut)
    assert (refused.found, refused.expected) == (19, 20)
    with Store(tmp_path / "store") as store:
        assert [event.kind for event in store.history()] == ["new"]


def test_store_without_base_learns_when_not_to_answer(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", base=(), sr_width=None)
    for index in range(8):
        store.teach(f"class {index}", drawings(f"class {index % 3} {index % 4}", 4))
    chosen = store.snapshot().confidence
    assert chosen.automatic
    assert chosen.source.startswith("32 taught photos")
    assert chosen.threshold > 0
    store.undo()
    assert store.snapshot().confidence.source.startswith("28 taught photos")


@pytest.mark.parametrize("gate", [{}, {"whitening": True, "gate": "constant", "gate_strength": 0.1}])
def test_adaptation_moves_within_bounds_and_can_be_undone(tmp_path: Path, gate: dict) -> None:
    store, other = (make_store(tmp_path / name, **gate) for name in ("store", "other"))
    for each in (store, other):
        each.teach("yak", drawings("yak", 3))
        each.teach("emu", drawings("emu", 3))
    before = store.digest(), store.snapshot()
    unlabelled = drawings("yak", 23)[3:]
    assert store.adapt(unlabelled).absorbed["yak"] > 0
    after = store.digest(), store.snapshot()
    assert not store.adapt(unlabelled).absorbed  # repetition has no effect
    assert store.digest() == after[0]
    other.adapt(unlabelled[:7:-1])
    other.adapt(unlabelled[:8])
    assert other.digest() == after[0]  # nor has the order
    yak, emu = after[1].names.index("yak"), after[1].names.index("emu")
    P, moved = (each.classifier.prototypes for each in (before[1], after[1]))
    assert not torch.equal(moved[yak], P[yak])
    assert torch.equal(moved[emu], P[emu])
    tilde = [each.classifier.resisting_prototypes for each in (before[1], after[1])]
    assert torch.equal(*tilde)  # h~ is left alone
    nearest = (directions(P) - directions(P)[yak]).norm(dim=1).sort().values[1]
    assert (directions(moved)[yak] - directions(P)[yak]).norm() < 0.2 * nearest * 1.01
    shown = store.network.embed(store.read(drawings("emu", 9)).pictures)
    scores = [each.classifier.transferable_scores(shown) for each in (before[1], after[1])]
    differ = (scores[0] != scores[1]).any(0)
    assert differ[yak]  # with a gate, in its own space
    assert differ.sum() == 1
    assert [info.name for info in store.classes() if info.calibrated] == ["yak"]
    assert torch.equal(Store(store.folder).snapshot().classifier.prototypes, moved)
    store.teach("gnu", drawings("gnu", 3))  # samples choose anew among the classes
    again = Store(store.folder).snapshot().classifier.prototypes
    assert torch.equal(again, store.snapshot().classifier.prototypes)
    store.undo()
    assert store.digest() == after[0]
    store.undo()
    assert store.digest() == before[0]
    assert torch.equal(store.snapshot().classifier.prototypes, P)


def test_archive_carries_the_whole_store(store: Path, doodles: Path, tmp_path: Path) -> None:
    fairshot("teach", store, "umbrella", doodles / "teach" / "umbrella")
    assert " images move " in fairshot("adapt", store, doodles / "test" / "umbrella")
    fairshot("export", store, tmp_path / "store.zip")
    fairshot("import", tmp_path / "store.zip", tmp_path / "copy")
    with Store(store) as original, Store(tmp_path / "copy") as copy:
        assert copy.digest() == original.digest()
        assert copy.history() == original.history()
        photos = sorted((doodles / "test" / "umbrella").iterdir())
        assert copy.predict(photos) == original.predict(photos)
        assert copy.undo().kind == "adapt"
        assert copy.undo().kind == "teach"


@pytest.mark.parametrize(  # a graph of every view of every crop takes four times as long to optimise
    ("rule", "mirror"), [("whitened left out, mirrored", False), ("class covariance unbiased", True)]
)
def test_onnx_gives_the_same_answers(
    trained: Path, doodles: Path, tmp_path: Path, rule: str, mirror: bool
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    store = tmp_path / "store"
    recipe = load_recipe(str(trained / "recipe.yaml"), [*RULES[rule], f"method.mirror={mirror}"])
    run(recipe, RunOptions(tmp_path / "run", choose_hardware("cpu"), base=trained))
    Store.create(store, teaching.from_run(tmp_path / "run")).close()
    fairshot("teach", store, "umbrella", doodles / "teach" / "umbrella")
    with Store(store) as opened:
        checked = export_onnx(opened, tmp_path / "model.onnx")
        photos = sorted((doodles / "test" / "umbrella").iterdir())
        expected = opened.predict(photos)
        names = opened.snapshot().names
        pictures = opened.read(photos).pictures
        inputs = opened.network.embedder.test_view(DevicePictures.from_pictures(pictures))
        torch_scores = opened.snapshot().classifier.decide(opened.network.embed(pictures)).scores
    assert checked.difference < 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    properties = session.get_modelmeta().custom_metadata_map
    assert json.loads(properties["class_names"]) == names
    assert properties["size"] == str(inputs.shape[-1])
    found = session.run(["scores"], {"image": inputs.numpy()})[0]
    np.testing.assert_allclose(found, torch_scores, rtol=0, atol=1e-5)
    for image, prediction in zip(inputs, expected, strict=True):  # one by one: any number of images is taken
        scores, confidence, p_known = session.run(None, {"image": image[None].numpy()})
        assert names[int(scores[0].argmax())] == prediction.top[0].name
        assert confidence[0] == pytest.approx(prediction.confidence, abs=1e-3)
        assert p_known[0] == pytest.approx(prediction.p_known, abs=1e-3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "run", "store"]


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (
            ["new", "x", "--from", "run", "--backbone", "resnet18"],
            UserError,
            "either --from RUN or --backbone",
        ),
        (["new", "x", "--weights", "file"], UserError, "--weights goes with --backbone"),
        (["new", "x", "--from", "nowhere"], NoRun, "holds no result.json"),
        (["new", "x", "--from", "run", "--base", "photos"], UserError, "--base goes with --backbone"),
        (["new", "x", "--backbone", "resnet18", "--data", "photos"], UserError, "--data goes with --from"),
        (["new", "x", "--backbone", "resnet0"], UnknownBackbone, "nor a model of timm"),
        (["new", "x", "--backbone", "resnet18", "--weights", "no.file"], UnusableWeights, "--weights"),
        (["new", "x", "--backbone", "resnet18", "--base", "nowhere"], errors.NoBaseFolder, "--base"),
        (["teach", "nowhere", "okapi", "store"], errors.NotAStore, "fairshot new nowhere for photos"),
        (["forget", "store", "yeti"], errors.UnknownClass, "fairshot classes store"),
        (["rename", "store", "ant", "bee"], errors.ClassExists, "fairshot merge STORE 'ant' 'bee'"),
        (["export", "nowhere", "model.pt"], UserError, "ends in .onnx"),
        (["import", "nowhere.zip", "x"], errors.ArchiveRefused, "nowhere.zip cannot be imported"),
        (["evaluate", "store", "nowhere"], errors.NoClassFolders, "not a folder"),
        (["predict", "store", "nowhere.png"], UserError, "no such file or folder"),
    ],
)
def test_what_cannot_be_used_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], kind: type, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make_store(tmp_path / "store").close()
    refused = CliRunner().invoke(app, arguments).exception
    assert type(refused) is kind
    assert message in f"{refused}{advice(refused)}"
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize(
    ("recipe", "kind", "message"),
    [
        ("doodles/sss_bgmm", errors.UnsupportedRun, "not mixtures"),
        ("doodles/cec", errors.UnsupportedRun, "train one with: fairshot run"),
        ("doodles/sss", errors.RunWithoutWeights, "--fresh"),
    ],
)
def test_runs_that_make_no_store_are_refused(
    tmp_path: Path, trained: Path, recipe: str, kind: type[UserError], message: str
) -> None:
    (tmp_path / "result.json").write_bytes((trained / "result.json").read_bytes())
    (tmp_path / "recipe.yaml").write_text(load_recipe(recipe).as_yaml())
    with pytest.raises(kind) as refused:
        teaching.from_run(tmp_path)
    assert message in f"{refused.value}{advice(refused.value)}"


def test_a_run_of_another_version_is_refused(tmp_path: Path, trained: Path) -> None:
    """Its model lacks what this version keeps, or names it otherwise."""
    shutil.copytree(trained, tmp_path / "run")
    path = tmp_path / "run" / "model.safetensors"
    tensors = load_file(path)
    for part in ("classifier.h.", "classifier.counts", "embedder.mean", "embedder."):
        save_file({name: value for name, value in tensors.items() if not name.startswith(part)}, path)
        with pytest.raises(UserError, match=r"run/model\.safetensors"):
            teaching.from_run(tmp_path / "run")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"run/model\.safetensors"):
        teaching.from_run(tmp_path / "run")


def test_the_first_commands_of_the_page_work_on_what_the_demo_leaves(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).parents[2]
    (demo,) = re.findall(r"fairshot (compare .*)", (root / "Makefile").read_text())
    methods, _, out = demo.partition(" --benchmark doodles --out ")
    assert "sss" in methods.split()
    shutil.copytree(trained, tmp_path / out / "sss-seed0")  # as a comparison calls the run
    monkeypatch.chdir(tmp_path)
    first, *_ = (root / "docs" / "teaching.md").read_text().partition("`teach` tells")
    commands = re.findall(r"^    fairshot (.*?)(?:  +#.*)?$", first, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["new", "doodles", "teach", "predict"]
    for command in commands:
        fairshot(*command.split())


def test_all_of_it_is_there_in_python(trained: Path, doodles: Path, tmp_path: Path) -> None:
    """The example of the documentation."""
    Store.create(tmp_path / "store", teaching.from_run(str(trained))).close()
    with teaching.Store(tmp_path / "store") as store:
        store.teach("umbrella", sorted((doodles / "teach" / "umbrella").iterdir()))
        measured = teaching.evaluate(store, teaching.read_folder(store, str(doodles / "test")))
        assert measured.balance is None or measured.balance > 0
    teaching.export_archive(str(tmp_path / "store"), str(tmp_path / "store.zip"))
    teaching.import_archive(str(tmp_path / "store.zip"), str(tmp_path / "copy"))
    assert set(teaching.__all__) >= {"export_onnx", "from_backbone"}
    assert all(hasattr(teaching, name) for name in teaching.__all__)
    assert fairshot_package.Store is Store
