"""Time the presets: milliseconds that one photo takes on one core of a CPU, of the network alone.

python scripts/time_presets.py; the least processor time of several passes, which is disturbed least.
"""

from __future__ import annotations

import time

import torch

from fairshot.models.embedder import Embedder, ModelSettings
from fairshot.models.presets import PRESETS

PASSES = 15


@torch.inference_mode()
def main() -> None:
    """Print a line for each preset."""
    torch.set_num_threads(1)
    for preset in PRESETS.values():
        embedder = Embedder(ModelSettings(**preset.section()).without_weights(), 3).eval()
        photo, taken = torch.rand(1, 3, preset.size, preset.size), []
        for _ in range(PASSES):
            began = time.process_time()
            embedder(photo)
            taken.append(time.process_time() - began)
        megabytes = sum(weight.numel() for weight in embedder.backbone.parameters()) * 4 / 1e6
        print(
            f"{preset.name:20} {1000 * min(taken):4.0f} ms  {megabytes:6.1f} MB without a classifier",
            flush=True,
        )


if __name__ == "__main__":
    main()
