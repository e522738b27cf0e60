"""Draw the embedded benchmark from Quick, Draw!: 70 everyday classes of 100 drawings in 16 grey levels.

    python scripts/make_doodles.py QUICKDRAW.npz src/fairshot/benchmarks/data/doodles.npz

The source holds `x` (classes, drawings, 28, 28) uint8 and `classes`. The classes were picked by their
names alone; a seed puts them in order (the first 30 are the base classes) and shuffles the drawings.
"""

import argparse
import io
from pathlib import Path

import numpy as np

from fairshot.files import write_atomically

SEED = 0
CLASSES = """
    airplane, alarm clock, ant, apple, banana, basket, bear, bee, bench, bicycle, bird, book, bridge, bus,
    butterfly, cactus, camera, candle, car, carrot, castle, cat, chair, church, cloud, cow, crab, crown, cup,
    dog, dolphin, duck, elephant, envelope, eyeglasses, fish, flower, fork, frog, giraffe, guitar, hammer,
    hand, hat, helicopter, horse, house, ice cream, key, ladder, leaf, light bulb, lion, mushroom, octopus,
    pear, penguin, pizza, rabbit, sailboat, scissors, shoe, snail, spider, spoon, star, teapot, tractor, tree,
    umbrella
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    write_atomically(arguments.target, doodles(arguments.source))


def doodles(source: Path) -> bytes:
    """Return the subset as the content of an npz file."""
    with np.load(source, allow_pickle=False) as quickdraw:
        drawings, known = quickdraw["x"], quickdraw["classes"].tolist()
    rng = np.random.default_rng(SEED)
    names = rng.permutation([name.strip() for name in CLASSES.split(",")])
    subset = rng.permuted(np.arange(drawings.shape[1])[None].repeat(len(names), axis=0), axis=1)
    chosen = np.stack([drawings[known.index(name)][rows] for name, rows in zip(names, subset, strict=True)])
    content = io.BytesIO()
    np.savez_compressed(content, pixels=pack_levels(chosen), classes=names)
    return content.getvalue()


def pack_levels(pixels: np.ndarray) -> np.ndarray:
    """Round 0 .. 255 to 16 levels and put two pixels into a byte."""
    levels = ((pixels.astype(np.uint16) + 8) // 17).astype(np.uint8)
    pairs = levels.reshape(*levels.shape[:2], -1, 2)
    return pairs[..., 0] << 4 | pairs[..., 1]


if __name__ == "__main__":
    main()
