"""The web page: HTML, script and style sheet as files. All it does, it does through the REST API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Form, Request
from fastapi.responses import RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from fastapi.templating import Jinja2Templates

from fairshot.server.guard import COOKIE, LOGIN, STATIC, is_token
from fairshot.server.service import Service

FOLDER = Path(__file__).parent
TEMPLATES = Jinja2Templates(FOLDER / "templates")  # every value in them is escaped


def add_page(app: FastAPI, service: Service) -> None:
    """Add the page of a store, and the files it consists of."""
    app.mount(STATIC, StaticFiles(directory=FOLDER / "static"))
    store = service.store
    values = {"store": store.folder.resolve().name, "drawings": store.network.drawing_side is not None}

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        empty = await service.read(lambda: not store.snapshot().rows)
        return TEMPLATES.TemplateResponse(request, "page.html", {**values, "empty": empty})


def add_login(app: FastAPI, token: str) -> None:
    """Add a form that puts the token into a cookie."""

    @app.get(LOGIN, include_in_schema=False)
    async def form(request: Request) -> Response:
        return TEMPLATES.TemplateResponse(request, "login.html")

    @app.post(LOGIN, include_in_schema=False)
    async def enter(request: Request, given: Annotated[str, Form(alias="token")] = "") -> Response:
        if not is_token(given, token):
            return TEMPLATES.TemplateResponse(request, "login.html", {"wrong": True}, 401)
        response = RedirectResponse("/", 303)
        response.set_cookie(COOKIE, given, httponly=True, samesite="strict")
        return response
