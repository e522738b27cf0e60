"""CEC: prototypes and query look at each other before they are compared, as pseudo-sessions taught them."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy, linear, softmax

from fairshot.benchmarks.stream import LabelledPictures
from fairshot.methods.episodic import Episodic, EpisodicObjective, EpisodicSettings
from fairshot.methods.method import MethodCard
from fairshot.models.embedder import Embedder, Features, ModelSettings
from fairshot.training.episodes import Episode
from fairshot.training.hardware import from_all_processes, rank_slice
from fairshot.training.loop import Trainer

QUERIES_AT_ONCE = 256  # each needs prototypes of its own


class CECSettings(EpisodicSettings):
    """The pseudo-incremental episodes after the base training, of `way` base and as many novel classes."""

    shots: int = Field(1, ge=1, description="Support images per class of an episode.")
    episode_epochs: int = Field(40, ge=1, description="Epochs of episodes after the base training.")
    episode_learning_rate: float = Field(0.002, gt=0, description="Learning rate of the episodes.")


class ClassifierAttention(nn.Module):
    """One layer of self-attention over all prototypes and one query, with a way past it and a layer norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.look, self.offer, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.output = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, prototypes: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Adapt prototypes (E, C, d) to each of the queries (E, N, d), and each query to the prototypes.

        Returns prototypes (E, N, C, d) and queries (E, N, d). What prototypes say to each other is the same
        for every query and computed once.
        """
        look_p, look_q = self.look(prototypes), self.look(queries)
        offer_p, offer_q = self.offer(prototypes), self.offer(queries)
        value_p, value_q = self.given(prototypes), self.given(queries)
        among = torch.einsum("ecd,ekd->eck", look_p, offer_p)[:, None].expand(-1, queries.shape[1], -1, -1)
        to_query = torch.einsum("ecd,end->enc", look_p, offer_q)[..., None]
        weights = self.weights(torch.cat([among, to_query], dim=-1))
        heard = torch.einsum("enck,ekd->encd", weights[..., :-1], value_p)
        heard = heard + weights[..., -1:] * value_q[:, :, None]
        own = torch.cat([torch.einsum("end,ekd->enk", look_q, offer_p), (look_q * offer_q).sum(-1, True)], -1)
        weights = self.weights(own)
        answer = torch.einsum("enk,ekd->end", weights[..., :-1], value_p) + weights[..., -1:] * value_q
        return self.norm(prototypes[:, None] + heard), self.norm(queries + answer)

    def given(self, tokens: Tensor) -> Tensor:
        """What a token gives to those that look at it, the output layer applied before the weighted sum."""
        return linear(self.value(tokens), self.output.weight, self.output.bias)

    def weights(self, products: Tensor) -> Tensor:
        """Turn products of looks and offers into weights that sum to one."""
        return softmax(products / self.output.in_features**0.5, dim=-1)


class AttentiveEmbedder(Embedder):
    """The network with the attention beside it."""

    def __init__(self, settings: ModelSettings, channels: int) -> None:
        super().__init__(settings, channels)
        self.attention = ClassifierAttention(self.width)


class PseudoSessions(EpisodicObjective):
    """Episodes in which turned images play classes that arrive later."""

    noise = 1
    embedder: AttentiveEmbedder

    def __init__(self, embedder: AttentiveEmbedder, episode: Episode, scale: float) -> None:
        super().__init__(embedder, episode)
        self.scale = scale

    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return the mean over all queries of cross-entropy among base and pseudo-novel classes."""
        del labels
        images = torch.cat([views[0], self.turned(views[0], noise[:, 0])])
        g, _ = self.embedder(images)
        supports, queries = zip(*(self.split(part) for part in g.chunk(2)), strict=True)
        prototypes = torch.cat(supports, dim=1).mean(2)
        classes = prototypes.shape[1]
        adapted, seen = self.embedder.attention(prototypes, torch.cat(queries, dim=1).flatten(1, 2))
        logits = self.scale * cosine_similarity(seen[:, :, None], adapted, dim=-1)
        rows = torch.arange(classes, device=g.device).repeat_interleave(self.episode.queries)
        return cross_entropy(logits.flatten(0, 1), rows.repeat(len(logits)))

    def turned(self, images: Tensor, noise: Tensor) -> Tensor:
        """Turn the images of each episode by one, two or three quarters, the same for all of them."""
        noise = from_all_processes(noise)  # another process may hold the first image, which decides
        quarters = (3 * noise.reshape(-1, self.episode.images)[:, :1]).long()
        quarters = rank_slice(quarters.expand(-1, self.episode.images).flatten())
        ways = torch.stack([images.rot90(k, (2, 3)) for k in (1, 2, 3)])
        return ways[quarters, torch.arange(len(images), device=images.device)]


class CEC(Episodic[CECSettings]):
    """Continually evolved classifiers.

    After a plain base session, episodes teach an attention layer: some base classes are known, the same
    images turned play classes that arrive later, and both must be told apart. A test image and all
    prototypes then look at each other once, and the most similar of them so adapted answers.
    Needs to know in advance: nothing. Stores: one mean feature a class. Costs at test time: one pass, and
    one attention over all prototypes.
    """

    name = "cec"
    Settings = CECSettings
    card = MethodCard("attention adapts prototypes to each query; learnt in pseudo-incremental episodes")
    embedder: AttentiveEmbedder

    def build_embedder(self, model: ModelSettings, channels: int) -> AttentiveEmbedder:
        """Put the attention beside the backbone."""
        return AttentiveEmbedder(model, channels)

    def train_base(self, base: LabelledPictures, trainer: Trainer) -> None:
        """Leave the attention as it is until the episodes."""
        self.embedder.attention.requires_grad_(False)
        super().train_base(base, trainer)

    def rehearsal(self, episode: Episode) -> PseudoSessions:
        """Return pseudo-incremental episodes, which train network and attention."""
        self.embedder.attention.requires_grad_(True)
        return PseudoSessions(self.embedder, episode, self.settings.scale)

    @torch.no_grad()
    def scores(self, features: Features, novel_only: bool = False) -> Tensor:
        """Return the cosine of each adapted query with the prototypes adapted to it."""
        parts = []
        for g in torch.split(features["g"][:, 0], QUERIES_AT_ONCE):
            adapted, seen = self.embedder.attention(self.prototypes[None, :, 0], g[None])
            parts.append(cosine_similarity(seen[0, :, None], adapted[0], dim=-1))
        cosines = torch.cat(parts) if parts else features["g"].new_empty(0, self.seen_classes)
        if novel_only:
            cosines[:, : self.base_classes] = -torch.inf
        return cosines
