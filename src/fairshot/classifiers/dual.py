"""DualClassifier: Algorithm 1 with its gate, Resistance and Calibration, as one immutable object.

Whoever decides between classes does it by this object: the methods SSS and SSS with mixtures, the estimator,
the store and its ONNX file, the search over gates, the poisoning study. It is made from the features of base
classes, extended by shots, adapted by unlabelled features, and asked by `decide`:

    classifier = DualClassifier.fit(PrototypeSettings(gamma=0.4), features, labels, base_classes=60)
    classifier = classifier.extend(shots, shot_labels)
    answers = classifier.decide(test).scores.argmax(1)

Features are a mapping of "g" (N, V, d) and "g_tilde" (N, V, d~), V views of each image; labelled images may
have "weights" (N,) too, which prototypes without a gate are made with. Images that are asked about after
several sessions may have what `precomputed` returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from fairshot.classifiers import bounded_calibration
from fairshot.classifiers.bgmm import BGMM
from fairshot.classifiers.bounded_calibration import Bounds, Calibration, Entry
from fairshot.classifiers.calibration import absorbing, alphas, recognise
from fairshot.classifiers.combination import Decision, combine, joined
from fairshot.classifiers.decision_settings import DecisionSettings, MixtureSettings, PrototypeSettings
from fairshot.classifiers.gate import TransferableClassifier
from fairshot.classifiers.novel_bias import NovelBias
from fairshot.classifiers.prototype_classifier import Prototypes, ResistingPrototypes
from fairshot.classifiers.prototypes import prototypes
from fairshot.classifiers.similarity import prototype_directions, similarity, similarity_to
from fairshot.classifiers.whitening import ClassCovariances, Whitening, WithinClassCovariance
from fairshot.errors import BadSetting

Features = Mapping[str, Tensor]


class Scores(NamedTuple):
    """Scores (N, C) of all classes by each kind of features."""

    transferable: Tensor
    specific: Tensor
    pre: Tensor | None = None  # of the joined features, for the rule of that name


@dataclass(frozen=True, eq=False)
class DualClassifier:
    """The classifiers h of g and h~ of g~ over all classes seen; every change returns a new object."""

    settings: PrototypeSettings | MixtureSettings
    base_classes: int
    counts: Tensor  # (C,) labelled images behind each class
    h: Prototypes | BGMM
    h_tilde: ResistingPrototypes | BGMM
    gate: TransferableClassifier | None = None  # in place of h where g decides, if there is a gate
    memory: Calibration | None = None  # of bounded Calibration, once unlabelled images came

    @classmethod
    def fit(
        cls,
        settings: PrototypeSettings | MixtureSettings,
        features: Features,
        labels: Tensor,
        base_classes: int,
        space: Whitening | None = None,
    ) -> Self:
        """Make the classifiers of the base classes from the features of their training images.

        A whitened space may be given; otherwise whitening learns it from the same images.
        """
        g, g_tilde, weights = features["g"], features["g_tilde"], features.get("weights")
        _check_weights(settings, weights)
        counts = labels.bincount(weights, minlength=base_classes)
        h: Prototypes | BGMM
        h_tilde: ResistingPrototypes | BGMM
        if isinstance(settings, MixtureSettings):
            components = settings.components_base, settings.components_novel
            h, h_tilde = (
                BGMM.fit(kind, labels, base_classes, components, settings.prior_freedom)
                for kind in (g, g_tilde)
            )
        else:
            h = Prototypes.fit(g, labels, base_classes, weights)
            h_tilde = ResistingPrototypes.fit(g_tilde, labels, base_classes, weights)
        gate = _fit_gate(settings, g, labels, counts, h, space) if settings.has_gate else None
        return cls(settings, base_classes, counts, h, h_tilde, gate)

    def extend(self, features: Features, labels: Tensor) -> Self:
        """Add new classes, whose ids follow the known ones; labelled images of known classes refine them."""
        _, new = split_known(labels, self.classes)
        weights = features.get("weights")
        _check_weights(self.settings, weights)
        counts = pad(self.counts, (0, len(new))) + labels.bincount(weights, minlength=self.classes)
        gate = self.gate
        if gate is not None:
            # In float64 a class comes out the same whether it is learnt alone or with others.
            gate = gate.extended(gate.project(features["g"].double()), labels, new)
        extended = replace(
            self,
            counts=counts,
            h=self.h.extended(features["g"], labels, self.counts, new, weights),
            h_tilde=self.h_tilde.extended(features["g_tilde"], labels, self.counts, new, weights),
            gate=gate,
        )
        if self.memory is None:
            return extended
        memory = bounded_calibration.relabel(
            self.memory, extended.h.means, extended.alphas(), extended.bounds
        )
        return replace(extended, memory=memory)

    def with_shot_covariance(self, features: Features, labels: Tensor, weight: float) -> Self:
        """Compare g in a space that is whitened by the covariance within the classes of shots too."""
        assert self.gate is not None
        return replace(self, gate=self.gate.with_shot_covariance(features["g"], labels, weight))

    def adapt(self, features: Features) -> Self:
        """Calibrate h with unlabelled images (eq. 9, 10, 24), within bounds if the settings say so."""
        g, settings = features["g"], self.settings
        if isinstance(settings, PrototypeSettings) and settings.bounded:
            memory = self.memory or bounded_calibration.begin(self.h.means, self.alphas())
            ids = torch.arange(len(g), device=g.device) + memory.shown
            return replace(self, memory=bounded_calibration.absorb(memory, g, ids, settings.bounds))
        if settings.recognised_by == "answers":
            answers, bare = self.decide(features).scores.argmax(1), self._bare_scores(features)
            certainty = bare.gather(1, answers[:, None])[:, 0]
            absorbed_by = absorbing(answers, certainty, settings.threshold, settings.at_most)
        else:
            absorbed_by = recognise(similarity(g, self.h.means), settings.threshold, settings.at_most)
        strengths, gate = self.alphas(), self.gate
        if gate is not None:
            gate = gate.calibrated(g, absorbed_by, self._weights(absorbed_by, strengths))
        return replace(self, h=self.h.calibrated(g, absorbed_by, strengths), gate=gate)

    def rollback(self, batches: int = 1) -> Self:
        """Undo the last batches of unlabelled images, if Calibration is bounded."""
        if not 0 <= batches <= len(self.journal):
            raise BadSetting(
                "batches", batches, f"the journal has {len(self.journal)} of unlabelled images to undo"
            )
        if self.memory is None:
            return self
        return replace(self, memory=bounded_calibration.rollback(self.memory, batches, self.bounds))

    @property
    def journal(self) -> tuple[Entry, ...]:
        """What each batch of unlabelled images did, if Calibration is bounded."""
        return () if self.memory is None else self.memory.journal

    def decide(self, features: Features, novel_only: bool = False) -> Decision:
        """Return the scores that decide (N, C), and whether g~ decided (N,).

        With `novel_only` base classes may not be answered: a diagnosis, which tells bad features from a
        biased decision.
        """
        scores = self.scores(features)
        if novel_only:
            for each in scores:
                if each is not None:
                    each[:, : self.base_classes] = -torch.inf
        return self.combine(*scores)

    def scores(self, features: Features) -> Scores:
        """Return the scores of all kinds of features by which the rule decides."""
        rule, transferable = self.settings.decision, self.transferable_scores(features)
        if rule == "transferable_only":  # the rule does not ask for the others
            return Scores(transferable, transferable)
        pre = self._pre_scores(features) if rule == "pre" else None
        return Scores(transferable, self.specific_scores(features["g_tilde"]), pre)

    def combine(self, transferable: Tensor, specific: Tensor, pre: Tensor | None = None) -> Decision:
        """Decide by scores (N, C) of both kinds of features."""
        return combine(self.settings.decision, transferable, specific, self.base_classes, pre)

    def transferable_scores(self, features: Features) -> Tensor:
        """Return the scores of g by h (N, C), with the bias of the gate if there is one."""
        bare = self._bare_scores(features)
        return bare if self.gate is None else self.with_bias(bare)

    def _bare_scores(self, features: Features) -> Tensor:
        """Return the scores of g by h (N, C), without bias."""
        if self.gate is None:
            return similarity_to(features["g"], self._directions, self.classes)
        return self._calibrated_gate.scores(features["g"], features.get("squares"))

    def precomputed(self, features: Features) -> dict[str, Tensor]:
        """Return what the base session alone decides about images, to be given beside their features."""
        squares = None if self.gate is None else self.gate.project(features["g"]).squares
        return {} if squares is None else {"squares": squares}

    def with_bias(self, scores: Tensor) -> Tensor:
        """Add the bias of the gate to scores of g (N, C) that have none."""
        base, novel = scores[:, : self.base_classes], scores[:, self.base_classes :]
        return torch.cat([base, self._bias.added_to(novel)], dim=1)

    @cached_property
    def _bias(self) -> NovelBias:
        """The bias of the gate, which depends on the classes alone."""
        assert self.gate is not None
        strength = self.counts.new_tensor(self.settings.gate_strength, dtype=torch.float32)
        return self.gate.novel_bias(self.settings.gate, strength)

    def specific_scores(self, g_tilde: Tensor) -> Tensor:
        """Return the scores of g~ by h~ (N, C), base classes resisting if the settings say so."""
        return similarity_to(g_tilde, self._directions_tilde, self.classes)

    def _pre_scores(self, features: Features) -> Tensor:
        both = joined(features["g"], features["g_tilde"])
        return similarity(both, joined(self.prototypes, self.resisting_prototypes))

    @cached_property
    def prototypes(self) -> Tensor:
        """P of h with which g is compared (C, V, d), calibrated within bounds if unlabelled images came."""
        if self.memory is None:
            return self.h.means
        return bounded_calibration.prototypes(self.memory, self.bounds)

    @property
    def resisting_prototypes(self) -> Tensor:
        """P~ of h~ with the base classes moved for inference (C, V, d~); what is stored stays."""
        settings = self.settings
        return self.h_tilde.resisting(settings.gamma) if settings.resistance else self.h_tilde.means

    @cached_property
    def _directions(self) -> Tensor:
        return prototype_directions(self.prototypes)

    @cached_property
    def _directions_tilde(self) -> Tensor:
        return prototype_directions(self.resisting_prototypes)

    @cached_property
    def _calibrated_gate(self) -> TransferableClassifier:
        """The gate with its prototypes moved by bounded Calibration, in its own space."""
        gate, memory = self.gate, self.memory
        assert gate is not None
        if memory is None:
            return gate
        projected = replace(memory, labelled=gate.prototypes, kept=gate.values(memory.kept))
        return replace(gate, prototypes=bounded_calibration.prototypes(projected, self.bounds))

    @property
    def classes(self) -> int:
        """How many classes have been learnt."""
        return len(self.counts)

    @property
    def bounds(self) -> Bounds:
        """How much unlabelled images may do in bounded Calibration, which prototypes alone have."""
        assert isinstance(self.settings, PrototypeSettings)
        return self.settings.bounds

    def alphas(self) -> Tensor:
        """Alpha of eq. 9, or alpha' of eq. 24, of each class (C,)."""
        if isinstance(self.settings, MixtureSettings):
            chosen = self.settings.prior_base, self.settings.prior_novel
        else:
            chosen = self.settings.alpha_base, self.settings.alpha_novel
        return alphas(self.classes, self.base_classes, *chosen)

    def _weights(self, absorbed_by: Tensor, strengths: Tensor) -> Tensor:
        """Weight of the absorbed samples in the prototypes of the gate (C,)."""
        if not isinstance(self.settings, MixtureSettings):
            return strengths
        absorbed = absorbed_by[absorbed_by >= 0].bincount(minlength=self.classes).to(strengths)
        return absorbed / (absorbed + strengths)

    def tensors(self) -> dict[str, Tensor]:
        """Return all that has been learnt, by name."""
        learnt = {"counts": self.counts}
        parts = {"h": self.h, "h_tilde": self.h_tilde, "gate": self.gate, "memory": self.memory}
        for name, part in parts.items():
            if part is not None:
                learnt |= {f"{name}.{key}": value for key, value in part.tensors().items()}
        return learnt

    @classmethod
    def from_tensors(
        cls,
        settings: PrototypeSettings | MixtureSettings,
        base_classes: int,
        tensors: Mapping[str, Tensor],
        views: int,
    ) -> Self:
        """Return what `tensors` was taken from; the settings and the number of views are not among them."""
        parts: dict[str, dict[str, Tensor]] = {"h": {}, "h_tilde": {}, "gate": {}, "memory": {}}
        for name, value in tensors.items():
            part, _, key = name.partition(".")
            if part in parts:
                parts[part][key] = value
        gate, memory = parts["gate"], parts["memory"]
        h: Prototypes | BGMM
        h_tilde: ResistingPrototypes | BGMM
        if isinstance(settings, MixtureSettings):
            h, h_tilde = (
                BGMM.from_tensors(parts[name], views, settings.components_novel, settings.prior_freedom)
                for name in ("h", "h_tilde")
            )
        else:
            h = Prototypes.from_tensors(parts["h"])
            h_tilde = ResistingPrototypes.from_tensors(parts["h_tilde"])
        return cls(
            settings,
            base_classes,
            tensors["counts"],
            h,
            h_tilde,
            TransferableClassifier.from_tensors(base_classes, gate, settings.power) if gate else None,
            Calibration.from_tensors(memory) if memory else None,
        )


def _check_weights(settings: DecisionSettings, weights: Tensor | None) -> None:
    if weights is not None and not settings.weighs_images:
        raise ValueError("images are weighted, but mixtures and gates weigh all alike")


def split_known(labels: Tensor, seen: int) -> tuple[Tensor, range]:
    """Return which labels are of known classes (N,), and the ids of the new ones, next in line."""
    known = labels < seen
    new = sorted(set(labels[~known].tolist()))
    if new != list(range(seen, seen + len(new))):
        raise ValueError(f"new class ids must follow the {seen} known ones without a gap; got {new}")
    return known, range(seen, seen + len(new))


def _fit_gate(
    settings: DecisionSettings,
    g: Tensor,
    labels: Tensor,
    counts: Tensor,
    h: Prototypes | BGMM,
    space: Whitening | None,
) -> TransferableClassifier:
    """Make the gate of the base classes from the features of their training images."""
    if not settings.whitening:
        return TransferableClassifier.of_base(h.means, counts)
    if space is not None:
        means = prototypes(space.transform(g.double()), labels, range(len(counts))).to(g)
        return TransferableClassifier.of_base(means, counts, space)
    covariance = WithinClassCovariance.fit(g, labels, len(counts), settings.power)
    metrics, share = None, settings.class_covariance_share
    if share:
        metrics = ClassCovariances.fit(g, labels, covariance, settings.shrinkage).metrics(share)
    return TransferableClassifier.whitened(covariance, counts, settings.shrinkage, metrics)
