"""How much a frame differs from the one that was asked about last.

Both are averaged over 32 x 32 cells of grey. The change is the share of cells whose grey differs by more than
a tenth of the range from black to white: something the size of one cell is seen, while noise, and light that
changes a little everywhere, is not.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image

from fairshot.benchmarks.pictures import Bytes

SIDE = 32  # cells
DIFFERENT = 0.1  # of the range from black to white
Cells = npt.NDArray[np.float32]


def cells(frame: Bytes) -> Cells:
    """Return the mean grey (32, 32), 0 .. 1, of the cells of a frame (H, W, 3)."""
    small = Image.fromarray(frame).convert("L").resize((SIDE, SIDE), Image.Resampling.BOX)
    return np.asarray(small, np.float32) / np.float32(255)


def change(before: Cells, after: Cells) -> float:
    """Return the share of cells that differ, 0 .. 1."""
    return float((np.abs(after - before) > DIFFERENT).mean())
