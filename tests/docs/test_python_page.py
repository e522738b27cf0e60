"""The page about Python: all its code runs, and what it makes is right."""

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import fairshot.reporting
from fairshot import Result, load_embedder
from fairshot.benchmarks import load_stream
from fairshot.benchmarks.stream import StreamSettings
from fairshot.errors import NoRun
from fairshot.reporting.figures import style, writer
from fairshot.teaching.doodle_files import write_doodles
from support.commands import blank
from support.pages import ROOT, CodeBlock, docstring_code, run_code, run_python


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("python-page")
    write_doodles(folder / "drawings", 5)
    return folder


@pytest.fixture(scope="module")
def page(folder):
    with pytest.MonkeyPatch.context() as patch:
        for module in (style, writer):
            patch.setattr(module, "render", blank)  # what figures show is a matter of tests/reporting
        return run_python(ROOT / "docs" / "python.md", folder)


def run_docstring(docstring: str, folder: Path) -> dict:
    code = docstring_code(docstring).replace("runs/demo", "runs/mine")
    return run_code([CodeBlock(Path("docstring"), 1, "python", code)], folder)


def test_its_code_runs(page, folder):
    assert page["model"].classes_.tolist() == ["apple", "candle", "dog", "house", "umbrella"]
    assert page["page"] == folder / "runs" / "mine" / "ncm-seed0" / "report" / "report.html"
    assert page["page"].is_file()
    assert list(page["page"].parent.glob("tables/*.csv"))
    assert {row.name for row in page["tables"][0].rows} == {"SSS", "FACT", "NCM"}


def test_the_example_of_reporting_runs(page, folder, capsys):
    run_docstring(fairshot.reporting.__doc__, folder)
    assert "doodles" in capsys.readouterr().out


def test_the_example_of_load_embedder_runs(page, folder, capsys):
    drawing = next((folder / "drawings" / "teach" / "umbrella").iterdir())
    for name in ("one.png", "two.png"):
        shutil.copy(drawing, folder / name)
    made = run_docstring(load_embedder.__doc__, folder)
    assert made["g"].shape[0] == 2
    assert str(made["g"].shape) in capsys.readouterr().out


@pytest.mark.parametrize("method", ["ncm", "fact", "sss"])
def test_an_embedder_gives_the_features_of_its_run(page, folder, method):
    run = folder / "runs" / "mine" / f"{method}-seed0"
    kept = load_file(run / "features.safetensors")  # of the test images, at half precision
    stream = load_stream("doodles", StreamSettings(base_classes=6, sessions=2))
    images = stream.seen_test(len(stream.sessions) - 1).pictures
    embedder = load_embedder(run)
    assert not embedder.training
    some = range(0, len(images), 50)
    with torch.no_grad():
        found = embedder(torch.stack([embedder.transform(images[i]) for i in some]))
    for ours, theirs in ((found.g, kept["g"]), (found.g_tilde, kept["g_tilde"])):
        torch.testing.assert_close(ours, theirs[list(some), 0].float(), rtol=2e-3, atol=2e-3)
    assert (found.g is found.g_tilde) == (method != "sss")


def test_a_transform_takes_files_pil_images_and_arrays_and_goes_to_workers(page, tmp_path):
    transform = pickle.loads(pickle.dumps(page["embedder"].transform))  # noqa: S301 - it is our own
    array = np.random.default_rng(0).integers(0, 256, (20, 30), dtype=np.uint8)
    Image.fromarray(array).save(tmp_path / "image.png")
    given = (array, Image.fromarray(array), tmp_path / "image.png", str(tmp_path / "image.png"))
    one, *others = (transform(image) for image in (*given, np.repeat(array[..., None], 3, axis=2)))
    assert one.shape == (1, 14, 14)
    assert one.dtype == torch.float32
    assert 0 <= one.min() < one.max() <= 1
    for other in others:
        torch.testing.assert_close(one, other)
    large = np.kron(array, np.ones((20, 20), np.uint8))
    assert transform(large).shape == (1, 14, 14)


def test_what_is_no_finished_run_has_no_embedder(page, folder, tmp_path):
    with pytest.raises(NoRun):
        load_embedder(tmp_path)
    run = folder / "runs" / "mine" / "ncm-seed0"
    Result.read(run).write(tmp_path)
    shutil.copy(run / "recipe.yaml", tmp_path)
    with pytest.raises(NoRun) as problem:
        load_embedder(tmp_path)
    assert problem.value.missing == "model.safetensors"
