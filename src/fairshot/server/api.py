"""The REST API; its description is at /openapi.json, a page to try it at /docs."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from importlib import metadata
from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Query, Request, Response, UploadFile
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field

from fairshot.server.limits import Limits, Refused
from fairshot.server.service import MOST_CANDIDATES, Service, Upload
from fairshot.teaching.balance import balance
from fairshot.teaching.event_log import Event
from fairshot.teaching.store import Prediction
from fairshot.teaching.teach_report import TeachReport

MOST_EVENTS = 1000


class Shown(BaseModel):
    """A part of a response, made from an object with the same attributes."""

    model_config = ConfigDict(from_attributes=True)


class Problem(Shown):
    """Why a request was not served."""

    detail: str


class CandidateResponse(Shown):
    """A class and the similarity of an image to it."""

    name: str
    similarity: float


class PredictionResponse(Shown):
    """The answer for one image; `answer` is null when it is unknown."""

    answer: str | None
    confidence: float = Field(description="Probability that the best candidate is right, if any is.")
    p_known: float = Field(description="Probability that the image shows a known class.")
    top: list[CandidateResponse]
    sentence: str

    @classmethod
    def of(cls, prediction: Prediction) -> PredictionResponse:
        """Show a prediction."""
        return cls.model_validate(asdict(prediction) | {"sentence": prediction.sentence()})


class ClassResponse(Shown):
    """A class."""

    name: str
    base: bool = Field(description="Trained, not taught.")
    photos: int = Field(description="Photos taught.")
    trained_on: int
    calibrated: bool


class ReassignedResponse(Shown):
    """Images that another class answered for before."""

    name: str
    count: int
    of: int


class TeachResponse(Shown):
    """What a lesson did, or would do."""

    name: str
    photos: int
    known: int
    created: bool
    dry_run: bool
    closest: list[CandidateResponse]
    taken: list[ReassignedResponse]
    stored: int
    changed: int
    sentence: str
    warnings: list[str]

    @classmethod
    def of(cls, lesson: TeachReport) -> TeachResponse:
        """Show a lesson."""
        closest = [CandidateResponse(name=name, similarity=value) for name, value in lesson.closest]
        shown = asdict(lesson) | {"closest": closest, "sentence": lesson.sentence()}
        return cls.model_validate(shown | {"warnings": lesson.warnings})


class EventResponse(Shown):
    """Something that was done to the store."""

    id: int
    at: str
    kind: str
    undone: bool
    sentence: str

    @classmethod
    def of(cls, event: Event) -> EventResponse:
        """Show an event."""
        return cls.model_validate(asdict(event) | {"sentence": event.sentence()})


class BalanceResponse(Shown):
    """Stored images answered right: samples of base classes, and taught photos each left out once."""

    base_images: int
    base_right: int
    taught_images: int
    taught_right: int


class Health(Shown):
    """That the server is there."""

    status: str = "ok"
    version: str


class Named(BaseModel):
    """A class."""

    model_config = ConfigDict(extra="forbid")
    name: str


class Renamed(Named):
    """A class and its new name."""

    new_name: str


class Merged(Named):
    """A class and the one that takes it in."""

    into: str


PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The request cannot be read."},
    401: {"model": Problem, "description": "A token is needed."},
    403: {"model": Problem, "description": "The request comes from another web site."},
    408: {"model": Problem, "description": "The request took too long to arrive."},
    413: {"model": Problem, "description": "Too large, or too many files."},
    421: {"model": Problem, "description": "The request was meant for another server."},
    422: {"model": Problem, "description": "What was given cannot be used."},
    503: {"model": Problem, "description": "Too many images are waiting."},
}
Files = Annotated[list[UploadFile], File(description="Image files: JPEG, PNG, WebP, BMP, GIF or TIFF.")]


def build_api(service: Service) -> APIRouter:
    """Return the routes of the API."""
    api = APIRouter(prefix="/api", route_class=_bounded(service.limits), responses=PROBLEMS)
    _add_asking(api, service)
    _add_teaching(api, service)
    return api


def _add_asking(api: APIRouter, service: Service) -> None:
    store = service.store

    @api.get("/health")
    async def health() -> Health:
        """Say that the server is there."""
        return Health(version=metadata.version("fairshot"))

    @api.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Return counters in the format of Prometheus."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @api.post("/predict")
    async def predict(
        images: Files, top: Annotated[int, Query(ge=1, le=MOST_CANDIDATES)] = 5
    ) -> list[PredictionResponse]:
        """Say what images show."""
        predictions = await service.predict(await _contents(images), top)
        return [PredictionResponse.of(prediction) for prediction in predictions]

    @api.get("/classes")
    async def classes() -> list[ClassResponse]:
        """List the classes: base ones in the order of training, then taught ones by name."""
        return [ClassResponse.model_validate(info) for info in await service.read(store.classes)]

    @api.get("/history")
    async def history(limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = 100) -> list[EventResponse]:
        """List what was done, the latest first."""
        return [EventResponse.of(event) for event in await service.read(lambda: store.history(limit))]

    @api.get("/balance")
    async def show_balance() -> BalanceResponse:
        """Compare base and taught classes on the images the store keeps."""
        return BalanceResponse.model_validate(await service.compute(lambda: balance(store)))


def _add_teaching(api: APIRouter, service: Service) -> None:
    store = service.store

    @api.post("/teach")
    async def teach(
        name: Annotated[str, Form()], photos: Files, dry_run: Annotated[bool, Form()] = False
    ) -> TeachResponse:
        """Teach a class from a few photos, or more photos of it; with `dry_run` only tell what it does."""
        return TeachResponse.of(await service.teach(name, await _contents(photos), dry_run))

    @api.post("/forget", status_code=204)
    async def forget(what: Named) -> None:
        """Take a class out."""
        await service.compute(lambda: store.forget(what.name))

    @api.post("/rename", status_code=204)
    async def rename(what: Renamed) -> None:
        """Give a class another name."""
        await service.compute(lambda: store.rename(what.name, what.new_name))

    @api.post("/merge", status_code=204)
    async def merge(what: Merged) -> None:
        """Put all that is known of one class into another."""
        await service.compute(lambda: store.merge(what.name, what.into))

    @api.post("/undo")
    async def undo() -> EventResponse:
        """Take back the last change that still stands."""
        return EventResponse.of(await service.compute(store.undo))


async def _contents(files: list[UploadFile]) -> list[Upload]:
    """Read uploaded files. Their names serve messages alone, but one that climbs is no honest upload's."""
    for file in files:
        if ".." in re.split(r"[/\\]", file.filename or "") or (file.filename or "").startswith("/"):
            raise Refused(422, "the name of an uploaded file is a path to elsewhere")
    return [
        Upload(file.filename or f"image {number}", await file.read())
        for number, file in enumerate(files, start=1)
    ]


def _bounded(limits: Limits) -> type[APIRoute]:
    """Return a kind of route whose forms hold no more files and fields than the limits allow."""

    class BoundedRequest(Request):
        def form(self, **_: Any) -> Any:
            return super().form(max_files=limits.files, max_fields=10, max_part_size=2**16)

    class BoundedRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def bounded(request: Request) -> Response:
                return await handle(BoundedRequest(request.scope, request.receive))

            return bounded

    return BoundedRoute
