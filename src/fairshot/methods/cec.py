"""CEC: attention adapts all prototypes and the query to each other; pseudo-incremental episodes train it."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from fairshot.methods.episodic_method import EpisodicMethod, EpisodicObjective, EpisodicSettings
from fairshot.methods.method import MethodCard
from fairshot.models.embedder import Embedder, Features, ModelSettings
from fairshot.training.episodes import Episode
from fairshot.training.hardware import from_all_processes, rank_slice

QUERIES_AT_ONCE = 256  # bounds the memory: each query has its own adapted copy of the prototypes


class CECSettings(EpisodicSettings):
    """The pseudo-incremental episodes after the base training, of `way` base and as many novel classes."""

    shots: int = Field(1, ge=1, description="Support images per class of an episode.")
    episode_epochs: int = Field(40, ge=1, description="Epochs of episodes after the base training.")
    episode_learning_rate: float = Field(0.002, gt=0, description="Learning rate of the episodes.")


class GraphAttention(nn.Module):
    """One self-attention layer over all prototypes and one query, with a residual and a layer norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.output = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, prototypes: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Adapt prototypes (E, C, d) to each of the queries (E, N, d), and each query to the prototypes.

        Returns prototypes (E, N, C, d) and queries (E, N, d).
        """

        def tokens(of_prototypes: Tensor, of_queries: Tensor) -> Tensor:
            """For each query, what belongs to all prototypes and to this query: (E, N, C + 1, d)."""
            shared = of_prototypes[:, None].expand(-1, queries.shape[1], -1, -1)
            return torch.cat([shared, of_queries[:, :, None]], dim=2)

        query, key = (tokens(layer(prototypes), layer(queries)) for layer in (self.query, self.key))
        # The weights sum to one, so that the output layer may come before the weighted sum, once per token.
        value = tokens(*(self.output(self.value(x)) for x in (prototypes, queries)))
        weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(dim=-1)
        adapted = self.norm(tokens(prototypes, queries) + weights @ value)
        return adapted[:, :, :-1], adapted[:, :, -1]


class PseudoIncrementalEpisodes(EpisodicObjective):
    """Episodes in which rotated images are pseudo-novel classes."""

    noise = 1

    def __init__(self, method: CEC, episode: Episode) -> None:
        super().__init__(method.embedder, episode, method.settings)
        self.attention = method.attention

    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return the cross-entropy of all queries among base and pseudo-novel classes."""
        del labels
        g, _ = self.embedder(torch.cat([views[0], self.rotated(views[0], noise[:, 0])]))
        supports, queries = zip(*(self.split(half) for half in g.chunk(2)), strict=True)
        prototypes = torch.cat(supports, dim=1).mean(2)
        adapted, query = self.attention(prototypes, torch.cat(queries, dim=1).flatten(1, 2))
        logits = self.settings.scale * cosine_similarity(query[:, :, None], adapted, dim=-1)
        targets = torch.arange(prototypes.shape[1], device=g.device).repeat_interleave(self.episode.queries)
        return cross_entropy(logits.flatten(0, 1), targets.repeat(len(logits)))

    def rotated(self, images: Tensor, noise: Tensor) -> Tensor:
        """Rotate all images of an episode by the same angle: 90, 180 or 270 degrees."""
        noise = from_all_processes(noise)  # the first image of the episode may lie on another process
        quarters = (3 * noise.reshape(-1, self.episode.images)[:, :1]).long()
        quarters = rank_slice(quarters.expand(-1, self.episode.images).flatten())
        rotations = torch.stack([images.rot90(k, (2, 3)) for k in (1, 2, 3)])
        return rotations[quarters, torch.arange(len(images), device=images.device)]


class CEC(EpisodicMethod[CECSettings]):
    """Continually evolved classifiers.

    After the base session of nearest class mean, episodes train an attention layer together with the
    network: some base classes are known, rotated images of them are classes that arrive later. The
    attention adapts a test image and all prototypes to each other; the most similar prototype is the answer.
    """

    name = "cec"
    Settings = CECSettings
    card = MethodCard(
        "attention adapts prototypes to each query; learnt in pseudo-incremental episodes",
        title="CEC",
        paper="Zhang et al., CVPR",
        year=2021,
        grid={"method.episode_learning_rate": (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01)},
    )
    modules = ("embedder", "attention")
    attention: GraphAttention

    def build_embedder(self, model: ModelSettings, channels: int) -> Embedder:
        """Build the network and the attention."""
        embedder = super().build_embedder(model, channels)
        self.attention = GraphAttention(embedder.width)
        return embedder

    def episode_objective(self, episode: Episode) -> PseudoIncrementalEpisodes:
        return PseudoIncrementalEpisodes(self, episode)

    @torch.no_grad()
    def similarities(self, features: Features) -> Tensor:
        """Return the cosine of each adapted query with the prototypes adapted to it."""
        cosines = []
        for g in torch.split(features["g"][:, 0], QUERIES_AT_ONCE):
            adapted, query = self.attention(self.prototypes[None, :, 0], g[None])
            cosines.append(cosine_similarity(query[0, :, None], adapted[0], dim=-1))
        return torch.cat(cosines)
