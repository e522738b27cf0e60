"""The trained network of a run, for plain torch code."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fairshot.benchmarks.cache import Resize
from fairshot.benchmarks.images import as_pictures
from fairshot.errors import NoRun
from fairshot.evaluation.base_session import trained_method
from fairshot.evaluation.experiment import own_pictures_side
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import MODEL, recipe_of
from fairshot.models.embedder import Embedder, ModelSettings, central_view
from fairshot.models.pixels import DevicePictures


class Embedded(NamedTuple):
    """The features of images."""

    g: Tensor  # (N, d): transferable features, behind the backbone
    g_tilde: Tensor  # (N, d~): class-specific features, behind SR; the same as g in a network without one


class ImageTransform:
    """Turns one image into the input of a network; a transform as those of torchvision.

    An image is a path, a PIL image or a uint8 array (H, W) or (H, W, C) of any size. The result is a float32
    tensor (C, size, size) in 0..1: the centre of the image, as a run sees its test images. The network
    normalises it itself.
    """

    def __init__(self, settings: ModelSettings, channels: int) -> None:
        self.settings, self.channels = settings, channels

    def __call__(self, image: Any) -> Tensor:
        """Return the input (C, size, size) of one image."""
        shrink = Resize(own_pictures_side(self.settings), enlarge=False)
        pictures = as_pictures([image], self.channels, shrink.apply)
        return central_view(DevicePictures.from_pictures(pictures), self.settings)[0]


class TrainedEmbedder(nn.Module):
    """The network of a run as its base session left it, in eval mode.

    `forward` takes what `transform` makes of images, (N, C, size, size) in 0..1, and returns g (N, d) and
    g~ (N, d~). All parameters can be trained further; `train()` and `eval()` are torch's own.
    """

    transform: ImageTransform

    def __init__(self, embedder: Embedder) -> None:
        super().__init__()
        self.embedder = embedder
        self.transform = ImageTransform(embedder.settings, embedder.channels)
        self.width, self.width_tilde = embedder.width, embedder.width_tilde
        self.eval()

    def forward(self, images: Tensor) -> Embedded:
        """Return g and g~ of images (N, C, size, size) in 0..1."""
        return Embedded(*self.embedder(images))


def load_embedder(run: str | Path, device: str | torch.device = "cpu") -> TrainedEmbedder:
    """Return the trained network of a finished run as a torch module, with its transform.

    Any method will do: g is what its backbone gives, g~ what the module behind it makes of g.

        import torch
        from fairshot import load_embedder

        embedder = load_embedder("runs/demo/sss-seed0")
        images = torch.stack([embedder.transform(file) for file in ["one.png", "two.png"]])
        with torch.no_grad():
            g, g_tilde = embedder(images)
        print(g.shape, g_tilde.shape)
    """
    run = Path(run)
    result = Result.read(run)
    if not (run / MODEL).is_file():
        raise NoRun(run, MODEL)
    method = trained_method(run, recipe_of(run), len(result.sessions[0]), len(result.class_names))
    return TrainedEmbedder(method.embedder).to(device)
