"""The application: guard, API, its description, and the page, around one store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi_swagger import patch_fastapi
from starlette.exceptions import HTTPException

from fairshot.errors import UserError
from fairshot.server.api import build_api
from fairshot.server.errors import Refused, status_of
from fairshot.server.guard import Guard, refusal
from fairshot.server.limits import Limits
from fairshot.server.page import add_login, add_page
from fairshot.server.service import Service
from fairshot.teaching.store import Store


def build_app(store: Store, token: str | None = None, limits: Limits | None = None) -> Guard:
    """Return the ASGI application of a store; without a token only this machine is served."""
    service = Service(store, limits or Limits())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await service.close()

    app = FastAPI(
        title="fairshot",
        version=metadata.version("fairshot"),
        summary=f"The store {store.folder.resolve().name}: show it five photos and go on.",
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        lifespan=lifespan,
    )
    app.include_router(build_api(service))
    patch_fastapi(app, redirect_from_root_to_docs=False)
    _explain_errors(app, store.folder)
    add_page(app, service)
    if token is not None:
        add_login(app, token)
    return Guard(app, service.limits, service.counters, token)


def _explain_errors(app: FastAPI, folder: Path) -> None:
    """Turn every error into one sentence under `detail`, which does not say where the store lies."""
    paths = sorted({str(folder), str(folder.resolve())}, key=len, reverse=True)

    @app.exception_handler(UserError)
    async def unusable(_: Request, error: UserError) -> JSONResponse:
        reason = str(error)
        for path in paths:
            reason = reason.replace(path, folder.resolve().name)
        return refusal(status_of(error), reason)

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> JSONResponse:
        return refusal(error.status, error.reason)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:])
        return refusal(422, f"{field}: {first['msg']}" if field else first["msg"])

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        return refusal(error.status_code, str(error.detail), error.headers)
