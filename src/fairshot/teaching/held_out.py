"""Trials on held-out images: taught photos left out one at a time, or images never taught."""

from __future__ import annotations

import torch
from torch import Tensor

from fairshot.classifiers.dual import DualClassifier, Scores
from fairshot.classifiers.left_out import left_out_distances, left_out_scores
from fairshot.models.embedder import Features
from fairshot.teaching.confidence import Decisions, Trials


def trials_of(classifier: DualClassifier, features: Features, labels: Tensor) -> Trials:
    """Answer for images that were never taught; labels (N,) are classes, or -1 for no known class.

    Without any image of no known class, every image stands for one too, answered for without its class.
    """
    known = labels >= 0
    own = {key: value[known] for key, value in features.items()}
    scores = classifier.scores(own)
    if bool(known.all()):
        unknown = _without_own_class(classifier, scores, own["g"], labels)
    else:
        foreign = {key: value[~known] for key, value in features.items()}
        unknown = Decisions.of(classifier, classifier.decide(foreign), foreign["g"])
    decision = classifier.combine(*scores)
    right = decision.scores.argmax(1) == labels[known]
    answers = Decisions.of(classifier, decision, own["g"])
    return Trials(answers, right, torch.ones(len(right)), unknown)


def leave_one_out(classifier: DualClassifier, photos: Features, labels: Tensor) -> Trials:
    """Answer for photos of taught classes, each as if it had not been taught, then as if its class had not.

    Classes must have at least two photos.
    """
    if not len(labels):
        return Trials.none()
    scores = left_out_scores(classifier, photos, labels)
    distances = left_out_distances(classifier, photos, labels)
    unknown = _without_own_class(classifier, scores, photos["g"], labels, distances)
    decision = classifier.combine(*scores)
    known = Decisions.of(classifier, decision, photos["g"], distances)
    return Trials(known, decision.scores.argmax(1) == labels, torch.ones(len(labels)), unknown)


def _without_own_class(
    classifier: DualClassifier, scores: Scores, g: Tensor, labels: Tensor, distances: Tensor | None = None
) -> Decisions:
    """Answer for images as if their classes were unknown; with a single class there is no other answer."""
    if classifier.classes < 2:
        return Decisions.none()
    own, lowest = (torch.arange(len(labels)), labels), torch.tensor(-torch.inf)
    transferable, specific = (each.index_put(own, lowest) for each in scores[:2])
    pre = None if scores.pre is None else scores.pre.index_put(own, lowest)
    decision = classifier.combine(transferable, specific, pre)
    return Decisions.of(classifier, decision, g, distances)
