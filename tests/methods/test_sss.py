"""SSS beside the paper, written again as loops over images in float64."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.transforms.v2.functional import resized_crop

from fairshot.benchmarks.pictures import Pictures
from fairshot.benchmarks.stream import LabelledPictures
from fairshot.classifiers.resistance import as_float
from fairshot.methods.dual_method import Stimulation
from fairshot.methods.mixing import mixtures, surplus_labels
from fairshot.methods.sss import SSS, SSSSettings
from fairshot.models.embedder import Embedder, ModelSettings
from fairshot.models.heads import SR, CosineHead, cosine_cross_entropy
from fairshot.models.pixels import DevicePictures

MODEL = ModelSettings(backbone="tiny", size=8, mean=(0.3,), std=(0.4,))
SMALL = {"sr_width": 6}


def uniform(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stimulation(classes: int, **options) -> Stimulation:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        chosen = SSSSettings(**SMALL | options)
        embedder = Embedder(MODEL, 1, chosen.sr_width if chosen.sr else None)
        return Stimulation(embedder, classes, chosen).double().eval()


# Fusion labels (section 3.1): each unordered pair of base classes is a surplus class of its own.


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 70))
def test_fusion_labels_number_the_pairs_one_by_one(classes):
    pairs = [(a, b) for a in range(classes) for b in range(a + 1, classes)]
    a, b = torch.tensor(pairs).T
    expected = torch.arange(classes, classes + len(pairs))
    assert torch.equal(surplus_labels(a, b, classes), expected)
    assert torch.equal(surplus_labels(b, a, classes), expected)
    assert mixtures(classes, inter=True) == classes + len(pairs)
    assert mixtures(classes, inter=False) == classes


def test_the_counts_of_the_paper():
    """60 base classes: 1,770 surplus mixtures and 3,660 rows."""
    assert mixtures(60, inter=True) - 60 == 1770
    assert len(stimulation(60).head.eta) == 3660


@pytest.mark.parametrize("intra", [True, False])
@pytest.mark.parametrize("inter", [True, False])
def test_the_head_has_a_row_for_each_component_of_each_mixture(intra, inter):
    rows = (2 if intra else 1) * (7 + (21 if inter else 0))
    assert len(stimulation(7, intra=intra, inter=inter).head.eta) == rows


# Fusion (eq. 5)


def fused_by_hand(views, labels, noise, classes, low, high, fused_weight, fused_views=2):
    """Loops over images: (image, mixture, weight), the plain ones of each view first."""
    views, noise = [view.numpy() for view in views], noise.numpy()
    own = len(labels) - noise.shape[1]
    out = [(view[i], labels[i], 1.0) for view in views for i in range(own)]
    for k in range(noise.shape[1]):
        for view in views[:fused_views]:
            for i in range(own):
                j = i + k + 1
                lam = low + (high - low) * noise[i, k]
                a, b = sorted((labels[i], labels[j]))
                pairs = [(x, y) for x in range(classes) for y in range(x + 1, classes)]
                target = classes + pairs.index((a, b)) if a != b else None
                out.append((lam * view[i] + (1 - lam) * view[j], target, fused_weight if a != b else 0.0))
    return out


@pytest.mark.parametrize(("fusions", "fused_views"), [(1, 2), (3, 2), (1, 1)])
def test_images_are_fused_with_their_neighbours_the_same_way_in_both_views(fusions, fused_views):
    chosen = {"fusions_per_image": fusions, "fused_weight": 0.5, "fused_views": fused_views}
    objective = stimulation(4, lam=(0.3, 0.8), **chosen)
    labels = [0, 3, 3, 1, 2, 0, 1, 1][: 5 + fusions]
    views = [uniform(len(labels), 1, 8, 8, seed=seed) for seed in (1, 2)]
    noise = uniform(len(labels), fusions, seed=3)
    images, targets, weights = objective.fuse(views, torch.tensor(labels), noise)
    expected = fused_by_hand(views, labels, noise, 4, 0.3, 0.8, 0.5, fused_views)
    assert len(images) == len(expected) == 5 * (2 + fused_views * fusions)
    for image, target, weight, (image_, target_, weight_) in zip(
        images, targets.tolist(), weights.tolist(), expected, strict=True
    ):
        np.testing.assert_allclose(image.numpy(), image_, atol=1e-12)
        assert weight == weight_
        assert target == target_ or weight_ == 0
    assert 0.0 in weights.tolist()


def test_without_fusion_the_batch_has_no_halo():
    objective = stimulation(3, inter=False)
    views = [uniform(4, 1, 8, 8)] * 2
    images, targets, weights = objective.fuse(views, torch.tensor([0, 1, 2, 1]), torch.empty(4, 0))
    assert objective.neighbours == objective.noise == 0
    assert torch.equal(images, torch.cat(views))
    assert targets.tolist() == [0, 1, 2, 1] * 2
    assert weights.tolist() == [1.0] * 8


def test_the_fusion_weight_is_uniform_or_a_clamped_beta():
    noise = (torch.arange(10000) + 0.5) / 10000
    flat = stimulation(2).fusion_weight(noise)
    assert flat.min() == pytest.approx(0.4, abs=1e-4)
    assert flat.max() == pytest.approx(0.6, abs=1e-4)
    assert flat.std() == pytest.approx(0.2 / math.sqrt(12), rel=1e-3)
    beta = stimulation(2, lam_distribution="beta", lam=(0.0, 1.0)).fusion_weight(noise)
    assert beta.mean() == pytest.approx(0.5, abs=1e-4)
    assert beta.std() == pytest.approx(math.sqrt(1 / (4 * 41)), rel=1e-2)  # of Beta(20, 20)
    clamped = stimulation(2, lam_distribution="beta").fusion_weight(noise)
    assert (clamped.min(), clamped.max()) == (pytest.approx(0.4), pytest.approx(0.6))


# The loss


def cross_entropy_by_hand(feature, rows, target, scale, margin):
    length = math.sqrt(sum(float(x) ** 2 for x in feature))
    logits = []
    for index, row in enumerate(rows):
        norm = math.sqrt(sum(float(x) ** 2 for x in row))
        cosine = sum(float(x) * float(y) for x, y in zip(feature, row, strict=True)) / (length * norm)
        logits.append(scale * (cosine - (margin if index == target else 0.0)))
    return math.log(sum(math.exp(logit) for logit in logits)) - logits[target]


@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_the_cosine_cross_entropy_with_margin(margin):
    head = CosineHead(5, 4).double()
    features, targets = uniform(6, 4, seed=1) - 0.5, torch.tensor([0, 1, 2, 3, 4, 0])
    ours = cosine_cross_entropy(head(features), targets, 16.0, margin)
    for feature, target, loss in zip(features, targets.tolist(), ours.tolist(), strict=True):
        rows = head.eta.detach()
        by_hand = cross_entropy_by_hand(feature, rows, target, 16.0, margin)
        assert loss == pytest.approx(by_hand, abs=1e-10)


@pytest.mark.parametrize("intra", [True, False])
def test_the_loss_of_a_batch(intra):
    """Plain images belong to component 1 of their mixture, vertically flipped ones to component 2."""
    objective = stimulation(3, intra=intra)
    labels = [2, 0, 1, 1, 2]
    views = [uniform(5, 1, 8, 8, seed=seed) for seed in (4, 5)]
    noise = uniform(5, 1, seed=6)
    with torch.no_grad():
        ours = float(objective(views, torch.tensor(labels), noise))
        batch = fused_by_hand(views, labels, noise, 3, low=0.4, high=0.6, fused_weight=1.0)
        losses, components = [], 2 if intra else 1
        for image, mixture, weight in batch:
            for component in range(components):
                seen = np.ascontiguousarray(image[:, ::-1] if component else image)  # rows upside down
                _, feature = objective.embedder(torch.from_numpy(seen)[None])
                row = components * (mixture or 0) + component
                loss = cross_entropy_by_hand(feature[0], objective.head.eta, row, 16.0, 0.0)
                losses.append(weight * loss)
    assert 0.0 in losses  # the neighbours of equal class
    assert ours == pytest.approx(sum(losses) / len(losses), abs=1e-9)


def test_the_sr_module_is_two_layers_around_a_relu():
    sr = SR(3, 5).double()
    g = uniform(4, 3, seed=7) - 0.5
    first, second = sr[0], sr[2]
    sr.requires_grad_(False)
    for row, out in zip(g, sr(g), strict=True):
        hidden = [
            max(0.0, float(first.bias[i]) + sum(float(first.weight[i, j] * row[j]) for j in range(3)))
            for i in range(5)
        ]
        expected = [
            float(second.bias[i]) + sum(float(second.weight[i, j]) * hidden[j] for j in range(5))
            for i in range(5)
        ]
        assert out.tolist() == pytest.approx(expected, abs=1e-12)


# Prototypes of two views, and the sessions


def drawings(classes: range, each: int, seed: int = 0) -> LabelledPictures:
    """Pictures of coarse blocks, half of them their class's own: far apart even for an untrained network."""
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(classes.start, classes.stop), each))
    blocks = [
        np.where(
            np.random.default_rng([1, label]).random((4, 4)) < 0.5,
            np.random.default_rng([2, label]).integers(0, 256, (4, 4)),
            np.random.default_rng([3, seed, index]).integers(0, 256, (4, 4)),
        )
        for index, label in enumerate(labels)
    ]
    pixels = np.kron(np.array(blocks, np.uint8), np.ones((1, 3, 3), np.uint8))
    return LabelledPictures(Pictures.from_array(pixels), labels.astype(np.int64))


def fresh_sss(**options) -> SSS:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        method = SSS(SSSSettings(**SMALL | options), MODEL, channels=1, base_classes=3)
    return method


def started(**options) -> tuple[SSS, LabelledPictures]:
    method, base = fresh_sss(**options), drawings(range(3), 4)
    method.init_classifiers(method.embed(base.pictures), torch.from_numpy(base.labels))
    return method, base


def features_by_hand(method: SSS, pictures: Pictures, flips: tuple[bool, ...]) -> dict[str, np.ndarray]:
    """One picture at a time, each view by itself, in float64."""
    network = method.embedder
    kept: dict[str, list] = {"g": [], "g_tilde": []}
    network.double().eval()
    with torch.no_grad():
        for index in range(len(pictures)):
            one = DevicePictures.from_pictures(pictures.take([index]))
            image = network.test_view(one).double()[0]
            rows = [image if not flip else torch.stack(list(image.unbind(1))[::-1], 1) for flip in flips]
            both = [network(row[None]) for row in rows]
            kept["g"].append(np.stack([g[0].numpy() for g, _ in both]))
            kept["g_tilde"].append(np.stack([tilde[0].numpy() for _, tilde in both]))
    network.float()
    return {name: np.stack(values) for name, values in kept.items()}


@pytest.mark.parametrize("intra", [True, False])
def test_prototypes_are_class_means_of_plain_and_flipped_features(intra):
    method, base = started(intra=intra)
    features = features_by_hand(method, base.pictures, (False, True) if intra else (False,))
    for name, ours in (("g", method.classifier.h.means), ("g_tilde", method.classifier.h_tilde.means)):
        for c in range(3):
            rows = [feature for feature, label in zip(features[name], base.labels, strict=True) if label == c]
            np.testing.assert_allclose(ours[c].numpy(), sum(rows) / len(rows), atol=1e-5)
    assert method.classifier.counts.tolist() == [4, 4, 4]
    assert not method.classifier.h_tilde.delta.any()


def cosine(a, b):
    return float(a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-12))


def answers_by_hand(g, g_tilde, P, P_tilde, delta, gamma, base):
    """Algorithm 1 with eq. 7, an image at a time: the answer, or None where rounding may decide."""
    moved = P_tilde / np.linalg.norm(P_tilde, axis=2, keepdims=True)
    for c in range(base):
        for j in range(2):
            length = np.linalg.norm(delta[c, j])
            moved[c, j] = moved[c, j] - gamma * delta[c, j] / (length or 1.0)
    out = []
    for x, x_tilde in zip(g, g_tilde, strict=True):
        first = [np.mean([cosine(x[j], P[c, j]) for j in range(2)]) for c in range(len(P))]
        answer = clear_winner(first)
        if answer is not None and answer < base:
            second = [np.mean([cosine(x_tilde[j], moved[c, j]) for j in range(2)]) for c in range(len(P))]
            answer = clear_winner(second)
        out.append(answer)
    return out


def clear_winner(scores):
    *_, second, best = sorted(scores)
    return int(np.argmax(scores)) if best - second > 2e-6 else None


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_two_sessions_through_the_real_network(gamma):
    """Learn, learn again with further pictures of an old class, answer: all of section 3.2 and 3.3."""
    method, base = started(gamma=gamma)
    sessions = [drawings(range(3, 5), 2), drawings(range(5, 6), 3)]
    again = drawings(range(1, 2), 2, seed=9)
    for session in sessions:
        method.learn(session)
    method.learn(again)

    def by_hand(given: LabelledPictures) -> dict[str, np.ndarray]:
        return features_by_hand(method, given.pictures, (False, True))

    everything = [base, *sessions, again]
    labels = np.concatenate([part.labels for part in everything])
    stacked = {
        name: np.concatenate([by_hand(part)[name] for part in everything]) for name in ("g", "g_tilde")
    }
    means = {
        name: np.stack([values[labels == c].mean(0) for c in range(6)]) for name, values in stacked.items()
    }
    # Delta was accumulated (eq. 8) before class 1 met its further pictures.
    early = {c: stacked["g_tilde"][: len(base)][base.labels == c].mean(0) for c in range(3)}
    delta = np.zeros((3, 2, means["g_tilde"].shape[2]))
    for c in range(3):
        for j in range(2):
            for i in range(3, 6):
                novel = means["g_tilde"][i, j]
                delta[c, j] += max(cosine(early[c][j], novel), 0) * novel / np.linalg.norm(novel)
    np.testing.assert_allclose(method.classifier.prototypes.numpy(), means["g"], atol=1e-5)
    np.testing.assert_allclose(method.classifier.h_tilde.means.numpy(), means["g_tilde"], atol=1e-5)
    np.testing.assert_allclose(as_float(method.classifier.h_tilde.delta).numpy(), delta, atol=1e-4)
    assert method.classifier.counts.tolist() == [4, 6, 4, 2, 2, 3]

    test = drawings(range(6), 8, seed=5)
    ours = method.predict(method.embed(test.pictures)).tolist()
    seen = by_hand(test)
    expected = answers_by_hand(seen["g"], seen["g_tilde"], means["g"], means["g_tilde"], delta, gamma, base=3)
    clear = [(mine, theirs) for mine, theirs in zip(ours, expected, strict=True) if theirs is not None]
    assert len(clear) > 0.8 * len(ours)
    assert [mine for mine, _ in clear] == [theirs for _, theirs in clear]
    assert len(set(ours)) > 3


def assert_same(got, expected):
    assert got.keys() == expected.keys()
    assert all(torch.equal(got[name], value) for name, value in expected.items())


def test_resistance_changes_answers_but_nothing_stored():
    method, _ = started(gamma=2.0)
    method.learn(drawings(range(3, 6), 2))
    test = method.embed(drawings(range(6), 10, seed=3).pictures)
    before = {name: value.clone() for name, value in method.classifier.tensors().items()}
    resisting = method.predict(test)
    assert_same(method.classifier.tensors(), before)
    plain, _ = started(resistance=False)
    plain.learn(drawings(range(3, 6), 2))
    assert (resisting >= 3).sum() > (plain.predict(test) >= 3).sum()


def test_without_sr_both_features_are_one():
    method, base = started(sr=False)
    features = method.embed(base.pictures)
    assert torch.equal(features["g"], features["g_tilde"])


def test_calibration_moves_only_h_and_only_towards_what_it_recognises():
    method, _ = started(threshold=-1.0, alpha_base=0.25)
    before, tilde = method.classifier.prototypes.clone(), method.classifier.h_tilde.means.clone()
    seen = method.embed(drawings(range(3), 5, seed=8).pictures)
    g = seen["g"].double().numpy()
    best = [
        int(np.argmax([np.mean([cosine(x[j], P[j]) for j in range(2)]) for P in before.double().numpy()]))
        for x in g
    ]
    method.adapt(seen)
    for c in range(3):
        mine = [x for x, winner in zip(g, best, strict=True) if winner == c]
        expected = before[c].double().numpy()
        if mine:
            expected = 0.75 * expected + 0.25 * sum(mine) / len(mine)
        np.testing.assert_allclose(method.classifier.prototypes[c].numpy(), expected, atol=1e-5)
    assert torch.equal(method.classifier.h_tilde.means, tilde)
    assert not torch.equal(method.classifier.prototypes, before)


def test_what_fails_is_not_learnt_by_half(monkeypatch):
    method, _ = started()
    before = {name: value.clone() for name, value in method.classifier.tensors().items()}
    with pytest.raises(ValueError, match="without a gap"):
        method.learn(drawings(range(4, 5), 2))

    def fail(*_):
        raise RuntimeError("no memory left")

    monkeypatch.setattr("fairshot.classifiers.prototype_classifier.accumulate", fail)
    shots = drawings(range(2, 4), 2)
    with pytest.raises(RuntimeError):
        method.learn(shots)
    assert_same(method.classifier.tensors(), before)


def test_what_was_learnt_is_restored():
    method, _ = started()
    method.learn(drawings(range(3, 5), 2))
    copy = fresh_sss()
    copy.embedder.backbone.stem[0].weight.data.zero_()
    copy.restore({name: value.clone() for name, value in method.tensors().items()})
    test = method.embed(drawings(range(5), 4, seed=3).pictures)
    assert torch.equal(copy.scores(copy.embed(drawings(range(5), 4, seed=3).pictures)), method.scores(test))


def test_mirror_images_are_averaged_in():
    plain, data = started()
    mirrored = fresh_sss(mirror=True)
    mirrored.restore(plain.tensors())
    pixels = np.stack([picture[:, ::-1] for picture in data.pictures])
    turned = plain.embed(Pictures.from_array(np.ascontiguousarray(pixels)))
    for name, upright in plain.embed(data.pictures).items():
        expected = (upright + turned[name]) / 2
        torch.testing.assert_close(mirrored.embed(data.pictures)[name], expected, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(upright, expected, atol=1e-3)
    assert SSS.passes(mirrored.settings) == 2 * SSS.passes(plain.settings) == 4


@pytest.mark.parametrize("mirror", [False, True])
def test_corner_crops_are_averaged_in(mirror: bool):
    """The mean over the image, its four corners as torchvision resizes them, and the mirror images of all."""
    plain, data = started()
    cropped = fresh_sss(mirror=mirror, corner_crops=0.75)
    cropped.restore(plain.tensors())
    images = plain.embedder.test_view(DevicePictures.from_pictures(data.pictures, torch.device("cpu")))
    size = images.shape[-1]
    side = 3 * size // 4
    appearances = [images]
    for top, left in [(0, 0), (0, size - side), (size - side, 0), (size - side, size - side)]:
        appearances.append(resized_crop(images, top, left, side, side, [size, size], antialias=False))
    if mirror:  # the corners of the mirror image are the mirror images of the corners
        appearances += [appearance.flip(3) for appearance in appearances]
    given = cropped.embed(data.pictures)
    with torch.inference_mode():
        for view, flips in enumerate([(), (2,)]):
            embedded = [cropped.embedder(appearance.flip(flips)) for appearance in appearances]
            for name, each in zip(("g", "g_tilde"), zip(*embedded, strict=True), strict=True):
                expected = torch.stack(each).mean(0)
                torch.testing.assert_close(given[name][:, view], expected, rtol=1e-4, atol=1e-4)
                assert not torch.allclose(each[0], expected, atol=1e-3)
    assert SSS.passes(cropped.settings) == 5 * (1 + mirror) * SSS.passes(plain.settings)
