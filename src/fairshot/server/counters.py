"""Counters of a server in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Counters:
    """What one server has done since it started."""

    def __init__(self, classes: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "fairshot_requests", "Requests by path and status.", ["path", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "fairshot_request_seconds", "Time to respond.", ["path"], registry=self.registry
        )
        self.answers = Counter(
            "fairshot_answers", "Images answered, known or unknown.", ["kind"], registry=self.registry
        )
        self.batches = Histogram(
            "fairshot_batch_images",
            "Images answered together.",
            buckets=(1, 2, 4, 8, 16, 32),
            registry=self.registry,
        )
        self.teachings = Counter(
            "fairshot_teachings", "Times that new photos were taught.", registry=self.registry
        )
        Gauge("fairshot_classes", "Classes of the store.", registry=self.registry).set_function(classes)

    def text(self) -> bytes:
        """Return all counters as text."""
        return generate_latest(self.registry)
