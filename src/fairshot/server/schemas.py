"""What requests and responses of the REST API consist of."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import asdict

from pydantic import BaseModel, ConfigDict, Field

from fairshot.teaching.event_log import Event
from fairshot.teaching.store import Prediction
from fairshot.teaching.teach_report import TeachReport

SHOWN_REASSIGNED = 8  # images of one class in the report of a teaching


class ResponseModel(BaseModel):
    """A part of a response, made from an object with the same attributes."""

    model_config = ConfigDict(from_attributes=True)


class ErrorResponse(ResponseModel):
    """Why a request was not served."""

    detail: str


class HealthResponse(ResponseModel):
    """That the server is there."""

    status: str = "ok"
    version: str


class CandidateResponse(ResponseModel):
    """A class and the similarity of an image to it."""

    name: str
    similarity: float


class PredictionResponse(ResponseModel):
    """The answer for one image; `answer` is null when it is unknown."""

    answer: str | None
    confidence: float = Field(description="Probability that the best candidate is right.")
    p_known: float = Field(description="Probability that the image shows a known class.")
    top: list[CandidateResponse]
    sentence: str
    remark: str = Field(description="How sure the answer is; the sentence without the answer.")

    @classmethod
    def of(cls, prediction: Prediction) -> PredictionResponse:
        """Make the response for a prediction."""
        words = {"sentence": prediction.sentence(), "remark": prediction.remark()}
        return cls.model_validate(asdict(prediction) | words)


class ClassResponse(ResponseModel):
    """A class."""

    name: str
    base: bool = Field(description="Trained, not taught.")
    photos: int = Field(description="Photos taught.")
    trained_on: int
    calibrated: bool


class ReassignedResponse(ResponseModel):
    """Stored images that are answered with another class now than before."""

    name: str = Field(description="The class they were answered with before.")
    count: int
    of: int = Field(description="All stored images that were answered with that class before.")
    thumbnails: list[str] = Field(description="Some of them, small, as data URLs.")


class TeachResponse(ResponseModel):
    """What teaching a class did, or would do."""

    name: str
    photos: int
    known: int
    created: bool
    dry_run: bool
    closest: list[CandidateResponse]
    reassigned: list[ReassignedResponse]
    stored: int
    changed: int
    sentence: str
    warnings: list[str]

    @classmethod
    def of(cls, report: TeachReport, thumbnails: Callable[[Sequence[int]], list[bytes]]) -> TeachResponse:
        """Make the response for a report; `thumbnails` returns small versions of stored images."""
        reassigned = [
            asdict(each) | {"thumbnails": list(map(data_url, thumbnails(each.images[:SHOWN_REASSIGNED])))}
            for each in report.reassigned
        ]
        closest = [{"name": name, "similarity": value} for name, value in report.closest]
        words = {"sentence": report.sentence(), "warnings": report.warnings}
        return cls.model_validate(asdict(report) | {"closest": closest, "reassigned": reassigned} | words)


class EventResponse(ResponseModel):
    """Something that was done to the store."""

    id: int
    at: str
    kind: str
    undone: bool
    sentence: str

    @classmethod
    def of(cls, event: Event) -> EventResponse:
        """Make the response for an event."""
        return cls.model_validate(asdict(event) | {"sentence": event.sentence()})


class BalanceResponse(ResponseModel):
    """Stored images answered right: samples of base classes, and taught photos each left out once."""

    base_images: int
    base_right: int
    taught_images: int
    taught_right: int


class ClassRequest(BaseModel):
    """A class."""

    model_config = ConfigDict(extra="forbid")
    name: str


class RenameRequest(ClassRequest):
    """A class and its new name."""

    new_name: str


class MergeRequest(ClassRequest):
    """A class and the one it is merged into."""

    into: str


def data_url(image: bytes) -> str:
    """Return a PNG or JPEG file as a data URL."""
    kind = "png" if image.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"
