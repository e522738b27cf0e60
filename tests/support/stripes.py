"""Photos that are quick to make and easy to tell apart."""

from pathlib import Path

import numpy as np
from PIL import Image


def photo(path: Path, kind: int, number: int) -> None:
    """Draw stripes, of another width and colour for each kind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([kind, number])
    stripes = (np.arange(48)[:, None, None] // (2 + 3 * kind) % 2) * (100 + 50 * np.arange(3) * (kind - 1))
    Image.fromarray((stripes + rng.integers(0, 60, (48, 48, 3))).clip(0, 255).astype(np.uint8)).save(path)
