"""TOPIC: a neural gas holds the shape of the feature space while the network learns on."""

from __future__ import annotations

import copy
import math

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, one_hot

from fairshot.methods.finetuning import descend
from fairshot.methods.method import MethodCard
from fairshot.methods.prototype_method import CosineSettings
from fairshot.methods.replay_method import ReplayMethod
from fairshot.models.embedder import Features


class TOPICSettings(CosineSettings):
    """The neural gas, and the losses that keep and grow it."""

    nodes: int = Field(
        400, ge=2, description="Nodes of the neural gas for the base classes; at least one per class."
    )
    rounds: int = Field(20, ge=1, description="Passes of the neural gas over the base features.")
    steps: int = Field(100, ge=1, description="Steps of fine-tuning in a session.")
    learning_rate: float = Field(0.001, gt=0, description="Learning rate of fine-tuning.")
    anchor: float = Field(1.0, ge=0, description="Weight of the loss that keeps old nodes where they are.")
    min_max: float = Field(0.1, ge=0, description="Weight of the loss that places new nodes.")
    margin: float = Field(
        0.5, ge=0, description="Distance that a new node keeps from neighbours of other classes."
    )


class TOPIC(ReplayMethod[TOPICSettings]):
    """Topology-preserving knowledge incrementer.

    A neural gas is laid over the features of the base session: nodes that stand for regions of the
    feature space, with edges between neighbours, each with the picture nearest to it. A session
    fine-tunes the network on the shots; an anchor loss keeps the pictures of old nodes where they were,
    and a min-max loss draws shots to the node that grows for their class and keeps that node away from
    neighbours of other classes. The class of the nearest node answers.
    Needs to know in advance: nothing. Stores: the nodes, their edges, the spread and a picture of
    each. Costs at test time: one pass, and fine-tuning of the network in every session.
    """

    name = "topic"
    Settings = TOPICSettings
    card = MethodCard(
        "a neural gas over the features is kept in place while the network is fine-tuned",
        stores="nodes of a neural gas with edges and spread, one picture a node",
        keeps_exemplars=True,
    )
    decision_settings = frozenset(
        {"nodes", "rounds", "steps", "learning_rate", "anchor", "min_max", "margin"}
    )
    buffers = (*ReplayMethod.buffers, "nodes", "spread", "edges")
    nodes: Tensor  # (M, d) of length 1; their labels are those of their exemplars
    spread: Tensor  # (M, d) variance of the features around each node
    edges: Tensor  # (M, M) whether two nodes are neighbours

    def choose(self, features: Features, labels: Tensor) -> Tensor:
        """Lay the neural gas, and keep the picture nearest each node."""
        g = normalize(features["g"][:, 0], dim=1)
        each = math.ceil(self.settings.nodes / self.base_classes)
        nodes = normalize(neural_gas(g, spaced(labels, each), self.settings.rounds), dim=1)
        kept = (g @ nodes.T).argmax(0)
        # A class that no node stands for gets one of its own, else it could never be answered.
        missing = torch.nonzero(labels[kept].bincount(minlength=self.base_classes) == 0)[:, 0]
        self.nodes = torch.cat([nodes, normalize(self.prototypes[missing, 0], dim=1)])
        cosines = g @ self.nodes.T
        self.spread, self.edges = spread_around(g, cosines), neighbours(cosines)
        own = cosines[:, len(nodes) :].masked_fill(labels[:, None] != missing, -torch.inf)
        return torch.cat([kept, own.argmax(0)])

    def add_classes(self, features: Features, labels: Tensor) -> None:
        """Fine-tune the network on the shots, and grow a node for each new class."""
        means, counts = self.extended(features, labels)
        tuning = FineTuning(self, features["images"], labels, means)
        tuning.learn()
        self.embedder = tuning.embedder
        self.prototypes, self.counts = means, counts
        self.nodes = tuning.all_nodes().detach()
        self.spread = torch.cat([self.spread, self.spread.mean(0).expand(len(tuning.kept), -1)])
        self.edges = tuning.edges
        self.exemplars = torch.cat([self.exemplars, features["images"][tuning.kept]])
        self.exemplar_labels = tuning.node_labels

    def scores(self, features: Features, novel_only: bool = False) -> Tensor:
        """Return the cosine with the nearest node of each class."""
        g = normalize(features["g"][:, 0], dim=1)
        cosines = by_class(g @ self.nodes.T, self.exemplar_labels, self.seen_classes)
        if novel_only:
            cosines[:, : self.base_classes] = -torch.inf
        return cosines


class FineTuning:
    """Fine-tuning in one session, on a copy: whatever fails, the method is as it was."""

    def __init__(self, method: TOPIC, images: Tensor, labels: Tensor, means: Tensor) -> None:
        self.settings, self.labels, self.shots = method.settings, labels, len(images)
        self.embedder = copy.deepcopy(method.embedder).eval()
        self.images = torch.cat([images, method.exemplars]) / 255
        self.old, self.spread = method.nodes.clone(), method.spread.clone()
        self.classes = len(means)
        grown = torch.arange(method.seen_classes, self.classes, device=labels.device)
        self.node_labels = torch.cat([method.exemplar_labels, grown])
        with torch.no_grad():
            g = normalize(self.embedder(self.images[: self.shots])[0], dim=1)
            member = (labels == grown[:, None]).to(g.dtype)
            self.fresh = nn.Parameter(normalize(member @ g, dim=1))
            cosines = g @ self.all_nodes().T
            self.edges = neighbours(cosines)
            self.edges[: len(self.old), : len(self.old)] |= method.edges
            own = cosines[:, len(self.old) :].masked_fill(member.T == 0, -torch.inf)
            self.kept = own.argmax(0)

    def all_nodes(self) -> Tensor:
        """Return old nodes and new ones."""
        return torch.cat([self.old, normalize(self.fresh, dim=1)])

    def learn(self) -> None:
        """Descend."""
        trained = [*self.embedder.backbone.parameters(), self.fresh]
        descend([(trained, self.settings.learning_rate)], self.loss, self.settings.steps)

    def loss(self) -> Tensor:
        """Recognise the shots, keep old nodes, place new ones."""
        g = normalize(self.embedder(self.images)[0], dim=1)
        shots, anchors = g[: self.shots], g[self.shots :]
        nodes = self.all_nodes()
        logits = self.settings.scale * by_class(shots @ nodes.T, self.node_labels, self.classes)
        kept = anchor_loss(anchors, self.old, self.spread)
        placed = self.min_max_loss(shots, nodes)
        return (
            cross_entropy(logits, self.labels) + self.settings.anchor * kept + self.settings.min_max * placed
        )

    def min_max_loss(self, shots: Tensor, nodes: Tensor) -> Tensor:
        """Draw each shot to the nearest node of its class; part neighbours of different classes."""
        distances = torch.cdist(shots, nodes)
        own = self.labels[:, None] == self.node_labels
        drawn = distances.masked_fill(~own, torch.inf).amin(1).mean()
        rivals = self.edges & (self.node_labels[:, None] != self.node_labels)
        rivals = rivals[len(self.old) :]
        short = (self.settings.margin - torch.cdist(nodes[len(self.old) :], nodes)).clamp(min=0)
        return drawn + (short * rivals).sum() / rivals.sum().clamp(min=1)


def spaced(labels: Tensor, each: int) -> Tensor:
    """Return which images a neural gas starts from: so many of each class, evenly spaced in their order."""
    start = []
    for label in range(int(labels.max()) + 1):
        own = torch.nonzero(labels == label)[:, 0]
        start.append(own[torch.linspace(0, len(own) - 1, min(each, len(own))).long().to(own.device)])
    return torch.cat(start)


def neural_gas(features: Tensor, start: Tensor, rounds: int) -> Tensor:
    """Lay nodes over features (N, d), beginning at some of them: the batch form of the neural gas.

    Each node moves to a mean of all features, weighted by how near it is to each compared with other nodes;
    its reach shrinks from round to round until it follows its own region alone.
    """
    nodes = features[start].clone()
    widest, narrowest = len(nodes) / 2, 0.1
    for t in range(rounds):
        reach = widest * (narrowest / widest) ** (t / max(1, rounds - 1))
        ranks = torch.cdist(features, nodes).argsort(dim=1, stable=True).argsort(dim=1)
        weights = torch.exp(-ranks.to(features.dtype) / reach)
        nodes = weights.T @ features / weights.sum(0)[:, None]
    return nodes


def spread_around(features: Tensor, cosines: Tensor) -> Tensor:
    """Return the variance (M, d) of the features nearest to each node, blended with that of all regions."""
    member = one_hot(cosines.argmax(1), cosines.shape[1]).to(features.dtype)
    counts = member.sum(0).clamp(min=1)[:, None]
    means = member.T @ features / counts
    variance = (member.T @ features.square() / counts - means.square()).clamp(min=0)
    return (variance + variance.mean(0)) / 2 + 1e-8


def neighbours(cosines: Tensor) -> Tensor:
    """Return which nodes (M, M) are, for some image (N, M), the nearest and the second nearest."""
    first, second = cosines.topk(2, dim=1).indices.T
    edges = torch.zeros(cosines.shape[1], cosines.shape[1], dtype=torch.bool, device=cosines.device)
    edges[first, second] = edges[second, first] = True
    return edges


def anchor_loss(anchors: Tensor, nodes: Tensor, spread: Tensor) -> Tensor:
    """Return how far the pictures of nodes have moved from them, in units of the spread around each."""
    return ((anchors - nodes).square() / spread).mean()


def by_class(cosines: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return the highest of the nodes (N, M) of each class: (N, classes)."""
    best = cosines.new_full((len(cosines), classes), -torch.inf)
    return best.scatter_reduce(1, labels.expand_as(cosines), cosines, "amax")
