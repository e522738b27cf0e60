"""What requests and responses of the REST API consist of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

from pydantic import BaseModel, ConfigDict, Field

from fairshot.server.recent import Unsure
from fairshot.teaching.event_log import Event
from fairshot.teaching.learning_curve import ClassCurve, Verdict
from fairshot.teaching.photos import data_url
from fairshot.teaching.single_photos import StoredPhoto
from fairshot.teaching.store import Prediction
from fairshot.teaching.teach_report import TeachReport

SHOWN_REASSIGNED = 8  # images of one class in the report of a teaching
MOST_CHOSEN = 1000  # pictures or photos that one request is about


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
    id: str | None = Field(description="Of the picture among those asked lately; null if it is not kept.")

    @classmethod
    def of(cls, prediction: Prediction, picture: str | None) -> PredictionResponse:
        """Make the response for a prediction."""
        words = {"sentence": prediction.sentence(), "remark": prediction.remark(), "id": picture}
        return cls.model_validate(asdict(prediction) | words)


class UnsureResponse(ResponseModel):
    """A picture asked lately, and what the store answers for it now."""

    id: str
    at: str = Field(description="When it was asked, in UTC.")
    doubt: float = Field(description="Probability that the answer is wrong.")
    thumbnail: str = Field(description="The picture, small, as a data URL.")
    prediction: PredictionResponse

    @classmethod
    def of(cls, unsure: Unsure) -> UnsureResponse:
        """Make the response for a picture."""
        asked = unsure.asked
        return cls(
            id=asked.id,
            at=asked.at,
            doubt=unsure.doubt,
            thumbnail=data_url(asked.thumbnail),
            prediction=PredictionResponse.of(unsure.prediction, asked.id),
        )


class PhotoResponse(ResponseModel):
    """A photo of a class."""

    id: int
    taught: bool = Field(description="Not a training image of a base class, which stays where it is.")
    thumbnail: str = Field(description="The photo, small, as a data URL.")

    @classmethod
    def of(cls, photo: StoredPhoto) -> PhotoResponse:
        """Make the response for a photo."""
        return cls(id=photo.id, taught=photo.taught, thumbnail=data_url(photo.thumbnail))


class MistakenResponse(ResponseModel):
    """A class that photos of another were answered with."""

    name: str
    count: int


class CurveResponse(ResponseModel):
    """The accuracy of a taught class by the number of photos it is made of."""

    name: str
    photos: int
    accuracy: list[float] = Field(description="On photos left out, at 1, 2, ... photos.")
    mistaken: list[MistakenResponse] = Field(description="Wrong answers at the most photos.")
    verdict: Verdict
    advice: str

    @classmethod
    def of(cls, curve: ClassCurve) -> CurveResponse:
        """Make the response for a curve."""
        mistaken = [{"name": name, "count": count} for name, count in curve.mistaken]
        words = {"verdict": curve.verdict, "advice": curve.advice()}
        return cls.model_validate(asdict(curve) | {"mistaken": mistaken} | words)


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


class RecentRequest(BaseModel):
    """Pictures asked lately."""

    model_config = ConfigDict(extra="forbid")
    ids: list[str] = Field(min_length=1, max_length=MOST_CHOSEN)


class LabelRequest(RecentRequest):
    """Pictures asked lately, and the class that they show."""

    name: str
    dry_run: bool = False


class PhotosRequest(ClassRequest):
    """Photos of a class."""

    photos: list[int] = Field(min_length=1, max_length=MOST_CHOSEN)


class MoveRequest(PhotosRequest):
    """Photos of a class, and the class that they are put into, known or new."""

    into: str
