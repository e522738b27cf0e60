"""Cards: the page of a repository, with what the hub reads of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData
from jinja2 import Environment, PackageLoader, StrictUndefined

from fairshot import benchmarks
from fairshot.documents import read_yaml_text
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import RECIPE
from fairshot.markdown import table
from fairshot.reporting.measures import SESSION_MEASURES, SUMMARY_MEASURES
from fairshot.teaching import Store


def _card(template: str, licence: str | None, **values: Any) -> str:
    chosen = f"Its licence is {licence}." if licence else "No licence was chosen for it."
    pages = Environment(  # noqa: S701 - a card is Markdown, which has nothing to escape as HTML has
        loader=PackageLoader("fairshot.hub", "data"), undefined=StrictUndefined, keep_trailing_newline=True
    )
    return pages.get_template(template).render(licence=chosen, **values)


def _data(repo: str, licence: str | None, tags: list[str], results: list[EvalResult]) -> ModelCardData:
    return ModelCardData(
        model_name=repo.rpartition("/")[2],
        license=licence,
        library_name="fairshot",
        pipeline_tag="image-classification",
        tags=tags,
        eval_results=results or None,
    )


def run_card(run: Path, repo: str, licence: str | None) -> str:
    """Describe a run: results, how they were made, how to load it."""
    result = Result.read(run)
    known = benchmarks.DATASETS.get(result.benchmark)
    title = known.title if known else result.benchmark
    summary = [(each, each.pick(result.metrics)) for each in SUMMARY_MEASURES]
    results = [
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
    ]
    sessions = [
        [str(number), *(_number(each.pick(metrics)) for each in SESSION_MEASURES)]
        for number, metrics in enumerate(result.metrics.sessions)
    ]
    measures = [[each.title, _number(value), each.meaning] for each, value in summary]
    return _card(
        "run.md.j2",
        licence,
        data=_data(repo, licence, ["few-shot-class-incremental-learning", result.method], results),
        repo=repo,
        title=title,
        result=result,
        sessions=table(["session", *(each.title for each in SESSION_MEASURES)], sessions),
        summary=table(["measure", "value", "meaning"], measures),
        recipe=read_yaml_text(run / RECIPE).rstrip(),
    )


def store_card(folder: Path, repo: str, licence: str | None) -> str:
    """Describe a store: its classes, how to load it, what of photos it keeps."""
    with Store(folder) as store:
        classes = store.classes()
    rows = [
        [each.name, f"{each.photos} photos" if not each.base else f"trained on {each.trained_on}"]
        for each in classes
    ]
    return _card(
        "store.md.j2",
        licence,
        data=_data(repo, licence, ["few-shot-learning", "teachable"], []),
        repo=repo,
        count=len(classes),
        classes=table(["class", "learnt from"], rows),
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
