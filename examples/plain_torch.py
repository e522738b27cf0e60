"""Use the trained network of a run in plain torch code: a linear classifier on its frozen features.

    python examples/plain_torch.py runs/demo/sss-seed0

The run must be one on the embedded drawings.
"""

import sys

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fairshot
from fairshot.benchmarks import doodles

CLASSES, SHOTS, STEPS = 10, 10, 200


def features(embedder, pictures):
    """Return the transferable features g of pictures; `embedder` is a torch module like any other."""
    inputs = torch.stack([embedder.transform(picture) for picture in pictures])
    with torch.no_grad():
        return embedder(inputs).g


def main(run: str) -> None:
    """Train a linear layer on the features of a few drawings of each class, and test it on others."""
    torch.manual_seed(0)
    embedder = fairshot.load_embedder(run)
    benchmark = doodles.load()
    sets = {}
    for part, count in ((benchmark.train, SHOTS), (benchmark.test, 25)):
        labels = torch.from_numpy(part.labels)
        chosen = torch.cat([torch.where(labels == label)[0][:count] for label in range(CLASSES)])
        sets[count] = features(embedder, [part.pictures[int(index)] for index in chosen]), labels[chosen]
    (x, y), (x_test, y_test) = sets.values()
    layer = nn.Linear(embedder.width, CLASSES)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        cross_entropy(layer(x), y).backward()
        optimizer.step()
    accuracy = (layer(x_test).argmax(1) == y_test).float().mean()
    print(f"{SHOTS} drawings of each of {CLASSES} classes: {accuracy:.1%} of others are answered rightly")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
