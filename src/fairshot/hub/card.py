"""Cards: the page of a repository, with what the hub reads of it."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import EvalResult, ModelCardData

from fairshot import benchmarks
from fairshot.documents import read_yaml_text
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import RECIPE
from fairshot.markdown import table
from fairshot.reporting.measures import SESSION_MEASURES, SUMMARY_MEASURES
from fairshot.teaching import Store


def _card(data: ModelCardData, title: str, *parts: str) -> str:
    return "\n\n".join([f"---\n{data.to_yaml()}\n---", f"# {title}", *parts]) + "\n"


def _licence_part(licence: str | None, what: str) -> str:
    chosen = f"Its licence is {licence}." if licence else "No licence was chosen for it."
    return f"## Licence\n\n{chosen} {what}"


def run_card(run: Path, repo: str, licence: str | None) -> str:
    """Describe a run: results, how they were made, how to load it."""
    result = Result.read(run)
    known = benchmarks.DATASETS.get(result.benchmark)
    title = known.title if known else result.benchmark
    summary = [(each, each.pick(result.metrics)) for each in SUMMARY_MEASURES]
    data = ModelCardData(
        model_name=repo.rpartition("/")[2],
        license=licence,
        library_name="fairshot",
        pipeline_tag="image-classification",
        tags=["few-shot-class-incremental-learning", result.method],
        eval_results=[
            EvalResult(
                task_type="image-classification",
                dataset_type=result.benchmark,
                dataset_name=title,
                metric_type="accuracy" if each.unit else "ratio",
                metric_name=each.title,
                metric_value=value,
            )
            for each, value in summary
            if value is not None
        ],
    )
    sessions = [
        [str(number), *(_percent(each.pick(metrics)) for each in SESSION_MEASURES)]
        for number, metrics in enumerate(result.metrics.sessions)
    ]
    environment = ", ".join(f"{name} {number}" for name, number in result.environment.packages.items())
    return _card(
        data,
        f"{result.method} on {title}",
        f"Few-shot class-incremental learning by fairshot: "
        f"{len(result.sessions[0])} base classes, then {len(result.sessions) - 1} sessions of new ones. "
        "Accuracies are in %, on test images of all classes seen so far.",
        "## Results",
        table(["session", *(each.title for each in SESSION_MEASURES)], sessions),
        table(
            ["measure", "value", "meaning"],
            [[each.title, _percent(value), each.meaning] for each, value in summary],
        ),
        "Calibration moved the classifiers by unlabelled test images (transductive)."
        if result.transductive
        else "No test image, labelled or not, changed the classifiers.",
        "## How to load",
        f"    pip install fairshot\n    fairshot pull {repo} my-run\n    fairshot report my-run\n"
        "    fairshot new my-store --from my-run      # teach it further classes",
        f"## How it was made\n\n    {result.command or 'fairshot run'}",
        f"Seed {result.seed}, on {result.environment.device}, Python {result.environment.python}: "
        f"{environment}. The recipe, with every setting:",
        f"```yaml\n{read_yaml_text(run / RECIPE).rstrip()}\n```",
        _licence_part(licence, f"The images of {title} are not part of it, and have a licence of their own."),
    )


def store_card(folder: Path, repo: str, licence: str | None) -> str:
    """Describe a store: its classes, how to load it, what of photos it keeps."""
    with Store(folder) as store:
        classes = store.classes()
    data = ModelCardData(
        model_name=repo.rpartition("/")[2],
        license=licence,
        library_name="fairshot",
        pipeline_tag="image-classification",
        tags=["few-shot-learning", "teachable"],
    )
    rows = [
        [each.name, f"{each.photos} photos" if not each.base else f"trained on {each.trained_on}"]
        for each in classes
    ]
    return _card(
        data,
        f"A store of {len(classes)} classes",
        "A classifier of images that is taught by a few photos per class, with fairshot.",
        "## How to load",
        f"    pip install fairshot\n    fairshot pull {repo} my-store\n"
        "    fairshot predict my-store photo.jpg\n    fairshot teach my-store NAME five-photos/",
        "## Classes",
        table(["class", "learnt from"], rows),
        "## What it holds\n\nThe weights of its network (safetensors), and of each photo its features and a "
        "thumbnail, but not the photo itself.",
        _licence_part(licence, "Thumbnails belong to whoever took the photos."),
    )


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
