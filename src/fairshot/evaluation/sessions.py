"""The session loop: learn, meet the test images of every class seen so far, count the answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fairshot.benchmarks.pictures import Ints
from fairshot.benchmarks.stream import Stream
from fairshot.errors import NotFinite
from fairshot.evaluation.metrics import confusion_matrix
from fairshot.methods.method import Method
from fairshot.models.embedder import Features
from fairshot.progress import SILENT, Reporter


@dataclass
class Outcome:
    """What the sessions gave."""

    confusions: list[Ints] = field(default_factory=list)
    novel_only: list[float | None] = field(default_factory=list)
    features: Features = field(default_factory=dict)  # of the test images of all sessions
    labels: Ints = field(default_factory=lambda: np.empty(0, np.int64))


def run_sessions(method: Method[Any], stream: Stream, reporter: Reporter = SILENT) -> Outcome:
    """Take a method that knows the base classes through all sessions.

    In each session: learn the new classes; adapt to the unlabelled test images, if the method does, before or
    after they are classified; classify. Where the network is frozen, each test image is embedded once.
    """
    outcome = Outcome()
    known: Features = {}  # of the test images, beside their features
    with reporter.track("sessions", len(stream.sessions)) as advance:
        for t, session in enumerate(stream.sessions):
            if t > 0:
                method.learn(session.train)
            if method.frozen:
                embedded = method.embed(session.test.pictures)
                _append(outcome.features, embedded)
                _append(known, method.precomputed(embedded))
            else:
                outcome.features = method.embed(stream.seen_test(t).pictures)
            if not all(bool(value.isfinite().all()) for value in outcome.features.values()):
                raise NotFinite(t, "the features of test images")
            outcome.labels = np.concatenate([outcome.labels, session.test.labels])
            adapts, features = t > 0 and method.transductive, outcome.features | known
            if adapts and not method.classifies_first:
                method.adapt(features)
            answers = method.predict(features).cpu().numpy()
            outcome.confusions.append(confusion_matrix(outcome.labels, answers, stream.seen_classes(t)))
            outcome.novel_only.append(_novel_only(method, features, outcome.labels, t) if t > 0 else None)
            if adapts and method.classifies_first:
                method.adapt(features)
            advance()
    return outcome


def _append(features: Features, more: Features) -> None:
    for name, value in more.items():
        features[name] = torch.cat([features[name], value]) if name in features else value


def _novel_only(method: Method[Any], features: Features, labels: Ints, session: int) -> float:
    """Accuracy in % on incremental classes when base classes may not be answered."""
    novel = torch.from_numpy(np.flatnonzero(labels >= method.base_classes))
    chosen = {name: value[novel.to(value.device)] for name, value in features.items()}
    scores = method.scores(chosen, novel_only=True)
    if scores.isnan().any():
        raise NotFinite(session, "the scores of test images")
    answers = scores.argmax(dim=1).cpu()
    return 100 * float((answers == torch.from_numpy(labels)[novel]).float().mean())
