"""Weights to begin with: those of a preset, or a file of safetensors or torch, which runs no code."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from pickle import UnpicklingError  # what torch raises; nothing is unpickled here
from typing import Any
from zipfile import BadZipFile, ZipFile

import platformdirs
import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from fairshot.errors import CannotWrite, ExtraMissing, UserError
from fairshot.models.errors import UnusableWeights, WeightsDoNotFit
from fairshot.models.presets import EXTRA, PRESETS, Preset
from fairshot.tensor_files import read_tensors, write_tensors

Tensors = dict[str, Tensor]
# keys under which checkpoints have them
NESTED = ("state_dict", "model_state_dict", "model", "net", "params", "weights")
HEADS = ("fc.", "classifier.", "head.")  # what classifiers behind a backbone are called
UNREADABLE = (RuntimeError, ValueError, LookupError, EOFError, TypeError, AttributeError, BadZipFile)
STATISTIC = "num_batches_tracked"  # of batch norms, which old files lack and nothing here uses
_BLOCK = {  # names in the packages, and those of timm, in a block that widens its input first
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
_FIRST_BLOCK = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
_OUTSIDE = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}


def sha256_of(weights: str) -> str | None:
    """Return the checksum of weights by their name or path; none for those that timm downloads."""
    if weights in PRESETS:
        return PRESETS[weights].sha256
    return hashlib.sha256(_content(Path(weights))).hexdigest()


def load_weights(backbone: nn.Module, name: str, channels: int, weights: str, sha256: str | None) -> None:
    """Load weights, by the name of a preset or from a file, into a backbone of that name.

    A classifier among them is passed over. All of the backbone must be there, and nothing that it has not: a
    ResNet-34 holds all of a ResNet-18.
    """
    preset = PRESETS.get(weights)
    tensors = read_weights(Path(weights), sha256) if preset is None else packaged_weights(preset)
    expected = backbone.state_dict()
    found = _with_channels(_under_one_prefix(tensors, expected), backbone, channels)
    if any(_misfit(found, expected, backbone)):
        found = _converted(found, backbone)
    misfit = _misfit(found, expected, backbone)
    if any(misfit):
        raise WeightsDoNotFit(weights, name, *misfit)
    for key, _ in backbone.named_parameters():
        if not found[key].isfinite().all():
            raise UnusableWeights(Path(weights), f"has numbers in {key} that are NaN or infinite")
    backbone.load_state_dict({key: found.get(key, value) for key, value in expected.items()})


def read_weights(path: Path, sha256: str | None = None) -> Tensors:
    """Read a file of safetensors, or a checkpoint that torch wrote, of which nothing but tensors is read."""
    content = _content(path)
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise UnusableWeights(path, f"is not the file it should be: its SHA-256 is not {sha256}")
    try:
        if content.startswith((b"PK", b"\x80")):  # as torch writes now, and as it did once
            _check_unpacked(path, content)
            loaded = torch.load(BytesIO(content), map_location="cpu", weights_only=True)
            return _plain(path, _state_dict(path, loaded), len(content))
        return _plain(path, load(content), len(content))
    except UnusableWeights:
        raise
    except UnpicklingError:
        reason = "holds other Python objects than tensors, which could run code, or is damaged"
    except SafetensorError as problem:
        reason = f"is neither a file of safetensors nor of torch ({problem})"
    except (OSError, *UNREADABLE) as problem:
        reason = f"cannot be read as weights ({str(problem).partition(chr(10))[0]})"
    raise UnusableWeights(path, reason)


def packaged_weights(preset: Preset, folder: Path | None = None) -> Tensors:
    """Return the weights of a preset that a package holds, under timm's names.

    They are converted once, to a file in the platform's cache folder; a damaged one is written anew.
    """
    assert preset.package is not None
    assert preset.sha256 is not None
    folder = folder or platformdirs.user_cache_path("fairshot") / "weights"
    cached = folder / f"{preset.name}-{preset.sha256[:16]}.safetensors"
    if cached.is_file():
        with suppress(UserError):  # it is damaged
            return read_tensors(cached)
    found = find_spec(preset.package)
    if found is None or not found.submodule_search_locations:
        raise ExtraMissing(f"the network {preset.name}", EXTRA)
    published = read_weights(Path(found.submodule_search_locations[0]) / preset.file, preset.sha256)
    tensors = _with_names_of_timm(published, preset.backbone)
    with suppress(CannotWrite):  # a read-only folder or a full disk: they are converted each time
        write_tensors(cached, tensors, {"source": preset.package, "licence": preset.licence})
    return tensors


def _with_names_of_timm(tensors: Tensors, backbone: str) -> Tensors:
    """Rename the tensors of an EfficientNet-Lite: timm numbers the blocks of each stage from 0 on."""
    import timm  # which takes seconds, and a checksum needs none of it

    with torch.device("meta"):
        names = timm.create_model(backbone).state_dict()
    blocks = list(
        dict.fromkeys(".".join(name.split(".")[:3]) for name in names if name.startswith("blocks."))
    )
    widening = {name.partition("._expand_conv.")[0] for name in tensors if "._expand_conv." in name}
    renamed = {}
    for name, value in tensors.items():
        *block, layer, kind = name.rsplit(".", 2)
        if not block:
            renamed[f"{_OUTSIDE[layer]}.{kind}"] = value
            continue
        layers = _BLOCK if block[0] in widening else _FIRST_BLOCK
        renamed[f"{blocks[int(block[0].partition('.')[2])]}.{layers[layer]}.{kind}"] = value
    return renamed


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise UnusableWeights(path, f"cannot be read: {problem.strerror}") from None


def _check_unpacked(path: Path, content: bytes) -> None:
    """Refuse a file that unpacks to more than it is: torch does not compress, and small ones could grow."""
    if content.startswith(b"PK"):
        with ZipFile(BytesIO(content)) as packed:
            if sum(member.file_size for member in packed.infolist()) > len(content):
                raise UnusableWeights(path, "is compressed, which files of torch are not")


def _plain(path: Path, tensors: Tensors, size: int) -> Tensors:
    """Return tensors that hold their own numbers; others, such as one number repeated, could fill memory."""
    for name, value in tensors.items():
        own = value.layout is torch.strided and value.device.type == "cpu" and not value.is_quantized
        if not own or value.is_complex() or value.numel() * value.element_size() > size:
            raise UnusableWeights(path, f"holds {name}, which is not an ordinary tensor of real numbers")
    return tensors


def _state_dict(path: Path, content: Any) -> Tensors:
    """Return the tensors of a checkpoint, which may have them below one of some usual keys."""
    if isinstance(content, Mapping):
        if content and all(isinstance(value, Tensor) for value in content.values()):
            return {str(name): value for name, value in content.items()}
        for key in NESTED:
            if isinstance(content.get(key), Mapping):
                return _state_dict(path, content[key])
    raise UnusableWeights(path, f"holds no tensors by name, neither itself nor below {', '.join(NESTED)}")


def _under_one_prefix(tensors: Tensors, expected: Tensors) -> Tensors:
    """Return the tensors under the prefix, such as `module.`, below which most of the expected names lie."""
    first = next(iter(expected))
    prefixes = {name.removesuffix(first) for name in tensors if name.endswith(first)} | {""}
    prefix = max(sorted(prefixes), key=lambda prefix: sum(prefix + name in tensors for name in expected))
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _with_channels(tensors: Tensors, backbone: nn.Module, channels: int) -> Tensors:
    """Fit the first convolution to grey pictures, as timm does it."""
    from timm.models import adapt_input_conv  # which takes seconds

    names = [f"{name}.weight" for name in _layers(backbone, "first_conv")]
    with suppress(NotImplementedError, AssertionError):  # of another shape, which is said afterwards
        return tensors | {
            name: adapt_input_conv(channels, tensors[name]) for name in names if name in tensors
        }
    return tensors


def _layers(backbone: nn.Module, role: str) -> Sequence[str]:
    """Return the names of the layers that timm records for a role."""
    names: str | Sequence[str] = getattr(backbone, "pretrained_cfg", {}).get(role) or ()
    return [names] if isinstance(names, str) else names


def _converted(tensors: Tensors, backbone: nn.Module) -> Tensors:
    """Convert tensors as the model's file in timm does: from the names and shapes of the original code."""
    convert = getattr(sys.modules[type(backbone).__module__], "checkpoint_filter_fn", None)
    try:
        return tensors if convert is None else dict(convert(dict(tensors), backbone))
    except Exception:  # made for other tensors; what does not fit is said of them as they are
        return tensors


def _misfit(found: Tensors, expected: Tensors, backbone: nn.Module) -> tuple[list[str], list[str], list[str]]:
    """Return which tensors are missing, of another shape, and unexpected."""
    own = [f"{name}." for name in _layers(backbone, "classifier")]
    missing = [name for name in expected if name not in found and not name.endswith(STATISTIC)]
    shapes = [
        f"{name} {tuple(found[name].shape)} instead of {tuple(value.shape)}"
        for name, value in expected.items()
        if name in found and found[name].shape != value.shape
    ]
    unexpected = [
        name for name in sorted(found) if name not in expected and not name.startswith((*HEADS, *own))
    ]
    return missing, shapes, unexpected
