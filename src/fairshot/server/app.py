"""The application: guard, API, its description, and the page, around one store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from fastapi_swagger import patch_fastapi
from starlette.exceptions import HTTPException

from fairshot.errors import UserError
from fairshot.server.api import build_api
from fairshot.server.guard import Guard
from fairshot.server.limits import Limits, Refused
from fairshot.server.page import mount_page
from fairshot.server.service import Service
from fairshot.teaching.store import Store

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7" fill="#2563eb"/>'
    '<circle cx="8" cy="8" r="3" fill="#fff"/></svg>'
)


def build_app(
    store: Store, token: str | None = None, limits: Limits | None = None, page: bool = True
) -> Guard:
    """Return the ASGI application of a store; without a token only this machine is let in."""
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
    _explain_problems(app)
    if page:
        mount_page(app, service)
        app.get("/", include_in_schema=False)(_to_page)
        app.get("/favicon.ico", include_in_schema=False)(_icon)
    return Guard(app, service.limits, service.metrics, token)


async def _to_page() -> RedirectResponse:
    return RedirectResponse("/page/")


async def _icon() -> Response:
    return Response(ICON, media_type="image/svg+xml")


def _explain_problems(app: FastAPI) -> None:
    """Every problem is one sentence under `detail`."""

    @app.exception_handler(UserError)
    async def unusable(_: Request, problem: UserError) -> JSONResponse:
        return JSONResponse({"detail": str(problem)}, 422)

    @app.exception_handler(Refused)
    async def refused(_: Request, problem: Refused) -> JSONResponse:
        headers = {"retry-after": "1"} if problem.status == 503 else None
        return JSONResponse({"detail": problem.reason}, problem.status, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, problem: RequestValidationError) -> JSONResponse:
        first = problem.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        return JSONResponse({"detail": f"{place}: {first['msg']}" if place else first["msg"]}, 422)

    @app.exception_handler(HTTPException)
    async def http(_: Request, problem: HTTPException) -> JSONResponse:
        return JSONResponse({"detail": str(problem.detail)}, problem.status_code, problem.headers)
