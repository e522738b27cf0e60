"""TOPIC: a neural gas keeps the topology of the feature space while the network is fine-tuned."""

from __future__ import annotations

import copy
import math

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, one_hot

from fairshot.methods.finetuning import minimise
from fairshot.methods.method import MethodCard
from fairshot.methods.prototype_method import COSINE, CosineSettings
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

    A neural gas is fitted to the features of the base session: nodes that stand for regions of the feature
    space, edges between neighbours, and for each node the picture nearest to it. A session fine-tunes the
    network on the shots; the anchor loss keeps the pictures of old nodes where they were, and the min-max
    loss pulls shots to the new node of their class and pushes that node away from neighbours of other
    classes. The nearest node gives the class.
    """

    name = "topic"
    trained_as = COSINE
    Settings = TOPICSettings
    card = MethodCard(
        "a neural gas over the features is kept in place while the network is fine-tuned",
        stores="nodes of a neural gas, their pictures",
        keeps_exemplars=True,
        title="TOPIC",
        paper="Tao et al., CVPR",
        year=2020,
        grid={"method.learning_rate": (0.0003, 0.001, 0.003), "method.anchor": (0.3, 1.0)},
    )
    decision_settings = frozenset(
        {"nodes", "rounds", "steps", "learning_rate", "anchor", "min_max", "margin"}
    )
    buffers = (*ReplayMethod.buffers, "nodes", "variance", "edges")
    nodes: Tensor  # (M, d) of length 1; their labels are those of their exemplars
    variance: Tensor  # (M, d) of the features around each node
    edges: Tensor  # (M, M) whether two nodes are neighbours

    def choose_exemplars(self, features: Features, labels: Tensor) -> Tensor:
        """Fit the neural gas, and keep the picture nearest to each node."""
        g = normalize(features["g"][:, 0], dim=1)
        per_class = math.ceil(self.settings.nodes / self.base_classes)
        nodes = normalize(neural_gas(g, spaced(labels, per_class), self.settings.rounds), dim=1)
        kept = (g @ nodes.T).argmax(0)
        # A class without a node gets one at its mean, else it could never be predicted.
        missing = torch.nonzero(labels[kept].bincount(minlength=self.base_classes) == 0)[:, 0]
        self.nodes = torch.cat([nodes, normalize(self.prototypes[missing, 0], dim=1)])
        cosines = g @ self.nodes.T
        self.variance, self.edges = region_variance(g, cosines), node_edges(cosines)
        own = cosines[:, len(nodes) :].masked_fill(labels[:, None] != missing, -torch.inf)
        return torch.cat([kept, own.argmax(0)])

    def add_classes(self, features: Features, labels: Tensor) -> None:
        """Fine-tune the network on the shots, and add a node for each new class."""
        means, counts = self.extended(features, labels)
        tuned = FineTuning(self, features["images"], labels, len(means))
        tuned.run()
        self.embedder, self.prototypes, self.counts = tuned.embedder, means, counts
        self.nodes, self.edges = tuned.all_nodes().detach(), tuned.edges
        self.variance = torch.cat([self.variance, self.variance.mean(0).expand(len(tuned.kept), -1)])
        self.exemplars = torch.cat([self.exemplars, features["images"][tuned.kept]])
        self.exemplar_labels = tuned.node_labels

    def similarities(self, features: Features) -> Tensor:
        """Return the cosine with the nearest node of each class."""
        g = normalize(features["g"][:, 0], dim=1)
        return by_class(g @ self.nodes.T, self.exemplar_labels, self.seen_classes)


class FineTuning:
    """The fine-tuning of one session, on a copy: if it fails, the method is unchanged."""

    def __init__(self, method: TOPIC, images: Tensor, labels: Tensor, classes: int) -> None:
        self.settings, self.labels, self.classes = method.settings, labels, classes
        self.embedder = copy.deepcopy(method.embedder).eval()
        self.images = torch.cat([images, method.exemplars]) / 255
        self.old_nodes, self.variance = method.nodes.clone(), method.variance.clone()
        new = torch.arange(method.seen_classes, classes, device=labels.device)
        self.node_labels = torch.cat([method.exemplar_labels, new])
        with torch.no_grad():
            g = normalize(self.embedder(self.images[: len(labels)])[0], dim=1)
            member = (labels == new[:, None]).to(g.dtype)
            self.new_nodes = nn.Parameter(normalize(member @ g, dim=1))
            cosines, old = g @ self.all_nodes().T, len(self.old_nodes)
            self.edges = node_edges(cosines)
            self.edges[:old, :old] |= method.edges
            self.kept = cosines[:, old:].masked_fill(member.T == 0, -torch.inf).argmax(0)

    def all_nodes(self) -> Tensor:
        """Return old and new nodes."""
        return torch.cat([self.old_nodes, normalize(self.new_nodes, dim=1)])

    def run(self) -> None:
        """Train the network and the new nodes."""
        trained = [*self.embedder.backbone.parameters(), self.new_nodes]
        minimise(self.loss, [{"params": trained, "lr": self.settings.learning_rate}], self.settings.steps)

    def loss(self) -> Tensor:
        """Classify the shots, keep old nodes in place, and place new ones."""
        g = normalize(self.embedder(self.images)[0], dim=1)
        shots, anchors = g[: len(self.labels)], g[len(self.labels) :]
        nodes, chosen = self.all_nodes(), self.settings
        logits = chosen.scale * by_class(shots @ nodes.T, self.node_labels, self.classes)
        anchor = chosen.anchor * anchor_loss(anchors, self.old_nodes, self.variance)
        min_max = chosen.min_max * self.min_max_loss(shots, nodes)
        return cross_entropy(logits, self.labels) + anchor + min_max

    def min_max_loss(self, shots: Tensor, nodes: Tensor) -> Tensor:
        """Pull each shot to the nearest node of its class; push neighbours of different classes apart."""
        old, distances = len(self.old_nodes), torch.cdist(shots, nodes)
        own = self.labels[:, None] == self.node_labels
        pull = distances.masked_fill(~own, torch.inf).amin(1).mean()
        rivals = (self.edges & (self.node_labels[:, None] != self.node_labels))[old:]
        push = (self.settings.margin - torch.cdist(nodes[old:], nodes)).clamp(min=0)
        return pull + (push * rivals).sum() / rivals.sum().clamp(min=1)


def spaced(labels: Tensor, per_class: int) -> Tensor:
    """Return the indices of images, evenly spaced in their order, with so many of each class."""
    chosen = []
    for label in range(int(labels.max()) + 1):
        own = torch.nonzero(labels == label)[:, 0]
        chosen.append(own[torch.linspace(0, len(own) - 1, min(per_class, len(own))).long().to(own.device)])
    return torch.cat(chosen)


def neural_gas(features: Tensor, start: Tensor, rounds: int) -> Tensor:
    """Fit nodes to features (N, d), beginning at those of the indices `start`: the batch neural gas.

    Each node moves to a mean of all features, weighted by its rank among the nodes nearest to each feature;
    the range of ranks that count shrinks from round to round until only the nearest node does.
    """
    nodes = features[start].clone()
    widest, narrowest = len(nodes) / 2, 0.1
    for t in range(rounds):
        width = widest * (narrowest / widest) ** (t / max(1, rounds - 1))
        ranks = torch.cdist(features, nodes).argsort(dim=1, stable=True).argsort(dim=1)
        weights = torch.exp(-ranks.to(features.dtype) / width)
        nodes = weights.T @ features / weights.sum(0)[:, None]
    return nodes


def region_variance(features: Tensor, cosines: Tensor) -> Tensor:
    """Return the variance (M, d) of the features nearest to each node, averaged with that of all nodes."""
    member = one_hot(cosines.argmax(1), cosines.shape[1]).to(features.dtype)
    counts = member.sum(0).clamp(min=1)[:, None]
    means = member.T @ features / counts
    variance = (member.T @ features.square() / counts - means.square()).clamp(min=0)
    return (variance + variance.mean(0)) / 2 + 1e-8


def node_edges(cosines: Tensor) -> Tensor:
    """Connect nodes (M, M) that are the nearest and the second nearest of some image (N, M)."""
    first, second = cosines.topk(2, dim=1).indices.T
    edges = torch.zeros(cosines.shape[1], cosines.shape[1], dtype=torch.bool, device=cosines.device)
    edges[first, second] = edges[second, first] = True
    return edges


def anchor_loss(anchors: Tensor, nodes: Tensor, variance: Tensor) -> Tensor:
    """Return how far the pictures of nodes have moved from them, relative to the variance around each."""
    return ((anchors - nodes).square() / variance).mean()


def by_class(cosines: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return the highest cosine with the nodes (N, M) of each class: (N, classes)."""
    best = cosines.new_full((len(cosines), classes), -torch.inf)
    return best.scatter_reduce(1, labels.expand_as(cosines), cosines, "amax")
