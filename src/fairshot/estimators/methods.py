"""The methods of `fairshot.methods` as estimators, by the same names."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

from fairshot.classifiers.decision_settings import PrototypeSettings
from fairshot.errors import BadSetting
from fairshot.estimators.estimator import MethodEstimator, Options, one_at_a_time
from fairshot.methods import (
    alice,
    bidist,
    c_fscil,
    ce_delta,
    cec,
    fact,
    fcil,
    nc_fscil,
    ncm,
    savc,
    sss,
    sss_bgmm,
    teen,
    topic,
)
from fairshot.methods.dual_method import DualMethod


@dataclass(eq=False, repr=False)
class DualEstimator(MethodEstimator):
    """SSS with prototypes or mixtures: beside labelled images it can learn from unlabelled ones."""

    kind: ClassVar[type[DualMethod[Any]]]

    @one_at_a_time
    def adapt(self, X: Any) -> Self:
        """Calibrate with unlabelled images: classes move towards those recognised with confidence.

        Images may come in any order and in batches of any size; what they may do to prototypes is bounded,
        unless method={"bounded": False}. `journal` tells what each call did, `rollback` undoes the last ones.
        """
        adapted = copy.copy(self._dual)
        adapted.adapt(self._features(X))
        return self.adopt(method_=adapted)

    @property
    def journal(self) -> list[dict[Any, int]]:
        """For each call of `adapt` within bounds: how many of its images each class took in then."""
        entries, labels = self._dual.classifier.journal, self.classes_.tolist()
        return [dict(Counter(labels[c] for c in entry.added_to.tolist())) for entry in entries]

    @one_at_a_time
    def rollback(self, calls: int = 1) -> Self:
        """Undo the last calls of `adapt`, if it is bounded; images that theirs had displaced return."""
        undone = copy.copy(self._dual)
        undone.classifier = undone.classifier.rollback(calls)
        return self.adopt(method_=undone)

    @property
    def _dual(self) -> DualMethod[Any]:
        return cast(DualMethod[Any], self._fitted)


@dataclass(eq=False, repr=False)
class SSS(DualEstimator):
    """SSS: learns new classes from a few images each, without bias towards the first ones.

    All that `fairshot.estimators.MethodEstimator` documents, and:

    Parameters
    ----------
    intra
        whether each image is also trained on upside down, as a second component of its class (eq. 4).
    inter
        whether fused pairs of images are trained as surplus classes (eq. 5).
    sr
        whether a second kind of features, specific to the classes of `fit`, decides between them (eq. 6).
    resistance
        whether labels of `fit` yield to new ones that resemble them (eq. 7 and 8).
    gamma
        strength of Resistance; more favours labels learnt by `partial_fit`.
    """

    kind = sss.SSS
    own_settings = ("intra", "inter", "sr", "resistance", "gamma")
    method_defaults: ClassVar[Options] = {"sr_width": 512, "bounded": True}

    intra: bool = True
    inter: bool = True
    sr: bool = True
    resistance: bool = True
    gamma: float = PrototypeSettings().gamma


class SSSBGMM(DualEstimator):
    """SSS whose classes are Bayesian Gaussian mixtures in place of prototypes."""

    kind = sss_bgmm.SSSBGMM
    method_defaults: ClassVar[Options] = {"sr_width": 512}


@dataclass(eq=False, repr=False)
class PlannedEstimator(MethodEstimator):
    """A method that must know before its base session how many classes there will be.

    Parameters
    ----------
    total_classes
        classes of `fit` and of all calls of `partial_fit` together; None takes the number of
        labels that a first `partial_fit` names by `classes`, or else twice as many as `fit` is given.
    """

    total_classes: int | None = None

    def _total_classes(self, base: int, declared: Sequence[Hashable] | None) -> int:
        total = self.total_classes
        if total is None:
            return 2 * base if declared is None else len(declared)
        if total < base:
            raise BadSetting("total_classes", total, f"y holds {base} classes already")
        return int(total)


class NCM(MethodEstimator):
    """Nearest class mean on features of a cosine cross-entropy: the strong baseline."""

    kind = ncm.NCM


class CEDelta(MethodEstimator):
    """The baseline with a margin between base classes, which hurts new ones."""

    kind = ce_delta.CEDelta


class TEEN(MethodEstimator):
    """TEEN: prototypes of new classes move towards the base prototypes they resemble."""

    kind = teen.TEEN


class ALICE(MethodEstimator):
    """ALICE: angular penalty over base and fused classes; balanced class means."""

    kind = alice.ALICE


class SAVC(MethodEstimator):
    """SAVC: transformed base classes as virtual classes, classified and contrasted."""

    kind = savc.SAVC


class CEC(MethodEstimator):
    """CEC: attention adapts prototypes and queries to each other, learnt in pseudo-incremental episodes."""

    kind = cec.CEC


class CFSCIL(MethodEstimator):
    """C-FSCIL: quasi-orthogonal prototypes, nudged apart, to which one layer is realigned."""

    kind = c_fscil.CFSCIL


class FCIL(MethodEstimator):
    """FCIL: infomax between levels of the network, then prototypes refined with their relations kept."""

    kind = fcil.FCIL


class BiDist(MethodEstimator):
    """BiDist: fine-tunes a second branch with two teachers; keeps one image of each class."""

    kind = bidist.BiDist


class TOPIC(MethodEstimator):
    """TOPIC: a neural gas is kept in place while the network is fine-tuned; keeps images of classes."""

    kind = topic.TOPIC


class FACT(PlannedEstimator):
    """FACT: virtual prototypes reserve space for future classes in the base session."""

    kind = fact.FACT


class NCFSCIL(PlannedEstimator):
    """NC-FSCIL: a fixed simplex has a vertex for every class, future ones included."""

    kind = nc_fscil.NCFSCIL
