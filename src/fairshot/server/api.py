"""The REST API; its description is at /openapi.json, a page to try it at /docs."""

from __future__ import annotations

import re
from importlib import metadata
from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Query, Response, UploadFile

from fairshot.server.errors import Refused
from fairshot.server.schemas import (
    BalanceResponse,
    ClassRequest,
    ClassResponse,
    CurveResponse,
    ErrorResponse,
    EventResponse,
    HealthResponse,
    LabelRequest,
    MergeRequest,
    MoveRequest,
    PhotoResponse,
    PhotosRequest,
    PredictionResponse,
    RecentRequest,
    RenameRequest,
    TeachResponse,
    UnsureResponse,
)
from fairshot.server.service import MOST_CANDIDATES, Service, Upload
from fairshot.teaching.balance import balance
from fairshot.teaching.photos import data_url

MOST_EVENTS = 1000
MOST_THUMBNAILS = 20
MOST_PHOTOS = 200  # in one response; further ones by `skip`
MOST_UNSURE = 200
LONGEST_NAME = 200  # of a file, in messages
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorResponse, "description": "The request cannot be read."},
    401: {"model": ErrorResponse, "description": "A token is needed."},
    403: {"model": ErrorResponse, "description": "The request comes from another web site."},
    408: {"model": ErrorResponse, "description": "The request took too long to arrive."},
    413: {"model": ErrorResponse, "description": "Too large, or too many files."},
    421: {"model": ErrorResponse, "description": "The request was meant for another server."},
    422: {"model": ErrorResponse, "description": "What was given cannot be used."},
    503: {"model": ErrorResponse, "description": "Too many images are waiting."},
}
Files = Annotated[list[UploadFile], File(description="Image files: JPEG, PNG, WebP, BMP, GIF or TIFF.")]


def build_api(service: Service) -> APIRouter:
    """Return the routes of the API."""
    api = APIRouter(prefix="/api", responses=ERRORS)
    _add_reading(api, service)
    _add_predicting(api, service)
    _add_recent(api, service)
    _add_changing(api, service)
    _add_changing_photos(api, service)
    return api


def _add_reading(api: APIRouter, service: Service) -> None:
    store = service.store

    @api.get("/health")
    async def health() -> HealthResponse:
        """Say that the server is there."""
        return HealthResponse(version=metadata.version("fairshot"))

    @api.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Return counters in the format of Prometheus."""
        return Response(service.counters.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @api.get("/classes")
    async def classes() -> list[ClassResponse]:
        """List the classes: base ones in the order of training, then taught ones by name."""
        return [ClassResponse.model_validate(info) for info in await service.read(store.classes)]

    @api.get("/thumbnails")
    async def thumbnails(name: str, limit: Annotated[int, Query(ge=1, le=MOST_THUMBNAILS)] = 5) -> list[str]:
        """Return small images of a class as data URLs; none of a class that does not exist."""
        return [data_url(image) for image in await service.read(lambda: store.thumbnails(name, limit))]

    @api.get("/photos")
    async def photos(
        name: str,
        limit: Annotated[int, Query(ge=1, le=MOST_PHOTOS)] = 100,
        skip: Annotated[int, Query(ge=0, lt=2**31)] = 0,
    ) -> list[PhotoResponse]:
        """List the photos of a class, taught ones first; none of a class that does not exist."""
        found = await service.read(lambda: store.photos(name, limit, skip))
        return [PhotoResponse.of(photo) for photo in found]

    @api.get("/history")
    async def history(limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = 100) -> list[EventResponse]:
        """List what was done, the latest first."""
        return [EventResponse.of(event) for event in await service.read(lambda: store.history(limit))]


def _add_predicting(api: APIRouter, service: Service) -> None:
    @api.post("/predict")
    async def predict(
        images: Files, top: Annotated[int, Query(ge=1, le=MOST_CANDIDATES)] = 5, remember: bool = True
    ) -> list[PredictionResponse]:
        """Say what images show; unless `remember` is false, they are among those asked lately then."""
        return [
            PredictionResponse.of(*each) for each in await service.predict(_uploads(images), top, remember)
        ]

    @api.get("/balance")
    async def show_balance() -> BalanceResponse:
        """Compare base and taught classes on the images the store keeps."""
        return BalanceResponse.model_validate(await service.compute(lambda: balance(service.store)))

    @api.get("/learning-curves")
    async def learning_curves() -> list[CurveResponse]:
        """Estimate the accuracy of taught classes at 1, 2, ... photos, the worst first, and advise."""
        return [CurveResponse.of(curve) for curve in await service.learning_curves()]


def _add_recent(api: APIRouter, service: Service) -> None:
    store = service.store

    @api.get("/recent")
    async def recent(
        limit: Annotated[int, Query(ge=1, le=MOST_UNSURE)] = 50,
        top: Annotated[int, Query(ge=1, le=MOST_CANDIDATES)] = 3,
    ) -> list[UnsureResponse]:
        """List pictures asked lately, but for taught ones, the most doubtful first, answered as of now."""
        found = await service.unsure(limit, top)
        return await service.read(lambda: [UnsureResponse.of(each) for each in found])

    @api.post("/recent/teach")
    async def teach_recent(request: LabelRequest) -> TeachResponse:
        """Teach a class from pictures asked lately."""
        report = await service.teach_recent(request.name, request.ids, request.dry_run)
        return await service.read(lambda: TeachResponse.of(report, store.image_thumbnails))

    @api.post("/recent/dismiss", status_code=204)
    async def dismiss(request: RecentRequest) -> None:
        """Keep pictures asked lately no longer: their answers are right, or they do not matter."""
        service.dismiss(request.ids)


def _add_changing(api: APIRouter, service: Service) -> None:
    store = service.store

    @api.post("/teach")
    async def teach(
        name: Annotated[str, Form()], photos: Files, dry_run: Annotated[bool, Form()] = False
    ) -> TeachResponse:
        """Teach a class from a few photos, or more photos of it; with `dry_run` only tell what it does."""
        report = await service.teach(name, _uploads(photos), dry_run)
        return await service.read(lambda: TeachResponse.of(report, store.image_thumbnails))

    @api.post("/forget", status_code=204)
    async def forget(request: ClassRequest) -> None:
        """Remove a class."""
        await service.compute(lambda: store.forget(request.name))

    @api.post("/rename", status_code=204)
    async def rename(request: RenameRequest) -> None:
        """Give a class another name."""
        await service.compute(lambda: store.rename(request.name, request.new_name))

    @api.post("/merge", status_code=204)
    async def merge(request: MergeRequest) -> None:
        """Put all photos of one class into another."""
        await service.compute(lambda: store.merge(request.name, request.into))

    @api.post("/undo")
    async def undo() -> EventResponse:
        """Undo the last change that is not undone yet."""
        return EventResponse.of(await service.compute(store.undo))


def _add_changing_photos(api: APIRouter, service: Service) -> None:
    store = service.store

    @api.post("/photos/drop", status_code=204)
    async def drop(request: PhotosRequest) -> None:
        """Take taught photos out of a class, which is forgotten with the last of them."""
        await service.compute(lambda: store.drop(request.name, request.photos))

    @api.post("/photos/move", status_code=204)
    async def move(request: MoveRequest) -> None:
        """Put taught photos of a class into another one, known or new."""
        await service.compute(lambda: store.move(request.name, request.photos, request.into))


def _uploads(files: list[UploadFile]) -> list[Upload]:
    """Name uploaded files. Names are used in messages only; names that are paths are still refused."""
    for file in files:
        if ".." in re.split(r"[/\\]", file.filename or "") or (file.filename or "").startswith("/"):
            raise Refused(422, "the name of an uploaded file is a path to elsewhere")
    return [
        Upload((file.filename or f"image {number}")[:LONGEST_NAME], file)
        for number, file in enumerate(files, start=1)
    ]
