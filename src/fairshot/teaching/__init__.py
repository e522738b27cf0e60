"""A durable store of taught classes: the embedder and the classifiers of SSS, at work."""

from fairshot.teaching.store import Store

__all__ = ["Store"]
