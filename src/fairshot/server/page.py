"""The web page: ask, teach, see what it took, undo. Built with Gradio, mounted in the same application."""

from __future__ import annotations

import base64
import io
from collections.abc import Awaitable, Callable
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import gradio as gr
from fastapi import FastAPI
from PIL import Image

from fairshot.errors import UserError
from fairshot.server import views
from fairshot.server.limits import Refused
from fairshot.server.service import MOST_CANDIDATES, Service, Upload
from fairshot.teaching.balance import balance

PATH = "/page"
CANVAS = (
    '<div class="fs-canvas"><div class="fs-title">{label}</div><canvas width="304" height="304"></canvas>'
    "<button>Clear</button></div>"
)
SHOWN_EVENTS = 50
MOST_CHOICES = 1000  # classes to pick from a list
FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
SOURCES: Any = ["upload", "webcam", "clipboard"]  # of photos
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}


def mount_page(app: FastAPI, service: Service) -> None:
    """Add the page to an application."""
    gr.mount_gradio_app(
        app,
        _Page(service).blocks,
        PATH,
        theme=gr.themes.Default(primary_hue="blue", font=FONTS, font_mono=["ui-monospace", "monospace"]),
        css=(resources.files("fairshot.server") / "page.css").read_text(),
        max_file_size=service.limits.file_bytes,
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        enable_monitoring=False,
        mcp_server=False,
        pwa=False,
    )


class _Page:
    """The page of one service; every action goes through it, as those of the API do."""

    def __init__(self, service: Service) -> None:
        self.service, self.store = service, service.store
        self.draws = service.store.network.drawing_side is not None
        with gr.Blocks(title="fairshot", analytics_enabled=False, delete_cache=(600, 3600)) as self.blocks:
            store = escape(service.store.folder.resolve().name)
            gr.HTML(f'<div class="fs-head"><b>fairshot</b><span class="fs-note">store {store}</span></div>')
            with gr.Tab("Ask"):
                self._ask_tab()
            with gr.Tab("Teach"):
                changes = self._teach_tab()
            with gr.Tab("Classes"):
                changes += self._classes_tab()
            with gr.Tab("History"):
                changes += self._history_tab()
            shown = [self.balance, self.classes, self.history, self.chosen, self.into]
            self.blocks.load(self._show, self.wanted, shown, **QUIET)
            self.wanted.change(self._show, self.wanted, shown, **QUIET)
            for change in changes:
                change.then(self._show, self.wanted, shown, **QUIET)

    # Tabs; each returns the events after which the store may be another

    def _ask_tab(self) -> None:
        with gr.Row():
            with gr.Column():
                image = (
                    self._canvas("Draw something", "ask")
                    if self.draws
                    else self._photo("Show something", "ask")
                )
            with gr.Column():
                answer = gr.HTML(views.notice_view("The answer appears here."), elem_id="answer")
        shown = image.input if self.draws else image.change
        shown(self._ask, image, answer, trigger_mode="always_last", concurrency_limit=None, **QUIET)

    def _teach_tab(self) -> list[Any]:
        with gr.Row():
            with gr.Column():
                name = gr.Textbox(label="Name of the class", max_length=100, elem_id="name")
                photos = self._drawings() if self.draws else self._photos()
            with gr.Column():
                with gr.Row():
                    dry_run = gr.Button("What would it do?", elem_id="dry-run")
                    teach = gr.Button("Teach", variant="primary", elem_id="teach")
                lesson = gr.HTML(
                    views.notice_view("What the class does to others appears here."), elem_id="lesson"
                )
                undo = gr.Button("Undo the last change", elem_id="undo")
        dry_run.click(self._rehearse, [name, photos], lesson, **QUIET)
        taught = teach.click(self._teach, [name, photos], [lesson, name, photos], **QUIET)
        return [taught, undo.click(self._undo, None, lesson, **QUIET)]

    def _classes_tab(self) -> list[Any]:
        self.balance = gr.HTML(elem_id="balance")
        with gr.Accordion("Change a class", open=False), gr.Row():
            with gr.Column():
                self.chosen = gr.Dropdown([], label="Class", elem_id="chosen")
                forget = gr.Button("Forget it", elem_id="forget")
            with gr.Column():
                new_name = gr.Textbox(label="New name", max_length=100, elem_id="new-name")
                rename = gr.Button("Rename it", elem_id="rename")
            with gr.Column():
                self.into = gr.Dropdown([], label="Other class", elem_id="into")
                merge = gr.Button("Merge it into the other", elem_id="merge")
        done = gr.HTML()
        self.wanted = gr.Textbox(show_label=False, placeholder="Search for a class", elem_id="search")
        self.classes = gr.HTML(elem_id="classes")
        return [
            forget.click(self._forget, self.chosen, done, **QUIET),
            rename.click(self._rename, [self.chosen, new_name], done, **QUIET),
            merge.click(self._merge, [self.chosen, self.into], done, **QUIET),
        ]

    def _history_tab(self) -> list[Any]:
        undo = gr.Button("Undo the last change", elem_id="undo-history")
        done = gr.HTML()
        self.history = gr.HTML(elem_id="history")
        return [undo.click(self._undo, None, done, **QUIET)]

    def _canvas(self, label: str, elem_id: str) -> gr.HTML:
        return gr.HTML(
            "",
            html_template=CANVAS.format(label=label),
            js_on_load=(resources.files("fairshot.server") / "canvas.js").read_text(),
            elem_id=elem_id,
        )

    def _drawings(self) -> gr.Gallery:
        canvas = self._canvas("Draw an example", "example")
        with gr.Row():
            add = gr.Button("Add this drawing", elem_id="add")
            clear = gr.Button("Remove all", elem_id="remove")
        drawings = gr.Gallery(
            label="Examples, about five",
            show_label=False,
            columns=5,
            height=115,
            interactive=False,
            type="filepath",
            buttons=[],
            elem_id="drawings",
        )
        add.click(self._add_drawing, [canvas, drawings], [drawings, canvas], **QUIET)
        clear.click(lambda: None, None, drawings, **QUIET)
        return drawings

    def _photos(self) -> gr.Gallery:
        return gr.Gallery(
            label="Photos, about five",
            columns=5,
            interactive=True,
            type="filepath",
            file_types=["image"],
            sources=SOURCES,
            elem_id="photos",
            buttons=[],
        )

    def _photo(self, label: str, elem_id: str) -> gr.Image:
        photo = gr.Image(
            label=label, type="filepath", sources=SOURCES, height=380, buttons=[], elem_id=elem_id
        )
        ours = _as_uploaded(photo.preprocess)
        photo.preprocess = ours  # type: ignore[assignment,method-assign] # a subclass would write a .pyi file
        return photo

    # Actions

    async def _ask(self, image: Any) -> str:
        file = _drawing(image) if self.draws else _photo_file(image) if image else None
        if file is None:
            return views.notice_view("The answer appears here.")

        async def ask() -> str:
            prediction = (await self.service.predict([file], MOST_CANDIDATES))[0]
            return await self.service.read(lambda: views.answer_view(prediction, self.store.thumbnails))

        return await _or_reason(ask)

    async def _rehearse(self, name: str, photos: Any) -> str:
        return await _or_reason(lambda: self._lesson(name, photos, True))

    async def _teach(self, name: str, photos: Any) -> tuple[str, Any, Any]:
        try:
            return await self._lesson(name, photos, False), "", None
        except (UserError, Refused) as problem:  # what was typed and shown stays, to be mended
            return views.notice_view(str(problem), problem=True), gr.skip(), gr.skip()

    async def _lesson(self, name: str, photos: Any, dry_run: bool) -> str:
        if not photos:
            wanted = "draw an example and add it" if self.draws else "give photos"
            raise UserError(f"there is nothing to teach from yet; {wanted} first")
        files = [_photo_file(photo[0]) for photo in photos]
        lesson = await self.service.teach(name, files, dry_run)
        return await self.service.read(
            lambda: views.lesson_view(lesson, self.store.thumbnails, self.store.image_thumbnails)
        )

    async def _undo(self) -> str:
        async def undo() -> str:
            undone = await self.service.compute(self.store.undo)
            return views.notice_view(f"Undone: {undone.sentence()}")

        return await _or_reason(undo)

    async def _forget(self, name: str | None) -> str:
        return await self._do(lambda: self.store.forget(name or ""), f"{name} is forgotten.")

    async def _rename(self, name: str | None, new_name: str) -> str:
        return await self._do(lambda: self.store.rename(name or "", new_name), f"{name} is {new_name} now.")

    async def _merge(self, name: str | None, into: str | None) -> str:
        return await self._do(
            lambda: self.store.merge(name or "", into or ""), f"{name} is part of {into} now."
        )

    async def _do(self, action: Callable[[], None], done: str) -> str:
        async def act() -> str:
            await self.service.compute(action)
            return views.notice_view(done)

        return await _or_reason(act)

    async def _show(self, wanted: str | None) -> tuple[Any, ...]:
        """Bring everything up to date that shows the store as a whole."""
        fair = await self.service.compute(lambda: balance(self.store))
        infos = await self.service.read(self.store.classes)
        events = await self.service.read(lambda: self.store.history(SHOWN_EVENTS))
        classes = await self.service.read(
            lambda: views.classes_view(infos, self.store.thumbnails, wanted or "")
        )
        names = [info.name for info in sorted(infos, key=lambda info: info.base)][:MOST_CHOICES]
        choices = gr.update(choices=names, value=None)
        return views.balance_view(fair), classes, views.history_view(events), choices, choices

    async def _add_drawing(self, canvas: Any, drawings: Any) -> tuple[Any, Any]:
        file = _drawing(canvas)
        if file is None:
            gr.Info("Draw something first, then add it.", title="The canvas is empty")
            return gr.skip(), gr.skip()
        await self.service.decode([file])  # refuses what is no image
        kept = [drawing[0] for drawing in drawings or []]
        return [*kept, Image.open(io.BytesIO(file.content))], ""


async def _or_reason(action: Callable[[], Awaitable[str]]) -> str:
    """Do something that returns what to show, or show why it was not done."""
    try:
        return await action()
    except (UserError, Refused) as problem:
        return views.notice_view(str(problem), problem=True)


def _as_uploaded(usual: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Take the path of a photo as it is: we read it, and say in our own words if it cannot be read."""

    def preprocess(payload: Any) -> Any:
        if payload is None or not payload.path or (payload.url or "").startswith("data:"):
            return usual(payload)
        return payload.path

    return preprocess


def _photo_file(path: str) -> Upload:
    return Upload(Path(path).name, Path(path).read_bytes())


def _drawing(canvas: Any) -> Upload | None:
    """Return what was drawn as an image file; None if nothing was."""
    start = "data:image/png;base64,"
    if not isinstance(canvas, str) or not canvas.startswith(start):
        return None
    try:
        return Upload("the drawing", base64.b64decode(canvas.removeprefix(start), validate=True))
    except ValueError:
        return None
