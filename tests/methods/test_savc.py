"""SAVC: virtual classes, supervised momentum contrast, scores averaged over exactly m passes."""

import math

import numpy as np
import pytest
import torch

from fairshot.benchmarks.pictures import Pictures
from fairshot.errors import BadSetting
from fairshot.methods.savc import SAVC, FantasyContrast, SAVCSettings, fantasy_transforms
from fairshot.models.embedder import ModelSettings
from fairshot.models.flips import FlipViews
from support.toys import VIEWS, after_base, toy_method, toy_stream, uniform


def objective(**options) -> FantasyContrast:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return toy_method("savc", **options).objective().double()


def test_the_transforms_are_half_turns_or_twelve_different_ones():
    images = uniform(2, 3, 5, 5)
    plain, rotated = (transform(images) for transform in fantasy_transforms("half_turn"))
    assert torch.equal(plain, images)
    assert torch.equal(rotated, images.flip(2).flip(3))
    twelve = [transform(images) for transform in fantasy_transforms("turns_and_colours")]
    assert torch.equal(twelve[0], images)
    assert len({image.numpy().tobytes() for image in twelve}) == 12
    for image in twelve:  # the same pixels, elsewhere
        assert torch.equal(image.flatten().sort().values, images.flatten().sort().values)


def test_every_class_under_every_transform_is_a_class():
    trained = objective()
    assert len(trained.head.eta) == 12
    assert trained.virtual_labels(torch.tensor([0, 5, 2])).tolist() == [0, 10, 4, 1, 11, 5]


def test_contrast_is_the_mean_likelihood_of_own_key_and_same_class():
    trained = objective(temperature=0.5)
    unit = lambda x: torch.nn.functional.normalize(x - 0.5, dim=1)  # noqa: E731
    queries, keys, queue = (unit(uniform(n, 16, seed=n)) for n in (4, 5, 7))
    keys, rows, queue_labels = keys[:4], torch.tensor([3, 1, 0, 3]), torch.tensor([3, -1, 1, 3, 2, 9, 1])
    losses = []
    for i in range(4):
        candidates = [keys[i], *queue]
        logits = [float(queries[i] @ key) / 0.5 for key in candidates]
        total = math.log(sum(map(math.exp, logits)))
        positive = [0] + [j + 1 for j in range(7) if queue_labels[j] == rows[i]]
        losses.append(-sum(logits[j] - total for j in positive) / len(positive))
    trained.queue, trained.queue_labels = queue, queue_labels
    found = trained.contrast(queries, rows, keys)
    assert float(found) == pytest.approx(sum(losses) / 4, rel=1e-5)


def test_the_queue_forgets_the_oldest_keys_first():
    trained = objective(queue=5)
    for first in (0, 3, 6):
        keys = torch.arange(first, first + 3)
        trained.enqueue(keys[:, None].expand(3, 16).double(), keys)
    assert trained.queue_labels.tolist() == [5, 6, 7, 8, 4]
    assert trained.queue[:, 0].tolist() == [5, 6, 7, 8, 4]
    trained.enqueue(torch.arange(8.0)[:, None].expand(8, 16), torch.arange(8))
    assert sorted(trained.queue_labels.tolist()) == [3, 4, 5, 6, 7]


def test_a_step_contrasts_with_earlier_keys_and_then_keeps_its_own():
    trained = objective()
    sizes = [trained.view_size(index, 14) for index in range(trained.views)]
    assert sizes == [14, 14, 14, 8, 8]
    views = [uniform(3, 1, side, side, seed=side + i) for i, side in enumerate(sizes)]
    keys = trained.keys(views[2])
    before = trained.queue.clone()
    trained(views, torch.tensor([0, 4, 4]), torch.empty(3, 0)).backward()
    assert torch.equal(trained.queue, before)
    trained.after_step()
    assert trained.queue_labels[:7].tolist() == [0, 8, 8, 1, 9, 9, -1]
    torch.testing.assert_close(trained.queue[:6], keys)
    assert trained.pointer == 6
    assert trained.projector[0].weight.grad is not None
    assert all(weight.grad is None for weight in trained.key_embedder.parameters())


def test_the_momentum_network_follows_slowly():
    trained = objective(momentum=0.75)
    with torch.no_grad():
        trained.projector[0].weight.add_(1.0)
    before = trained.key_projector[0].weight.clone()
    trained.new_keys = torch.zeros(1, 16), torch.zeros(1, dtype=torch.int64)
    trained.after_step()
    torch.testing.assert_close(trained.key_projector[0].weight, before + 0.25)
    assert not any("key_" in name for name, weight in trained.named_parameters() if weight.requires_grad)


def test_crops_are_large_or_small_and_the_classified_view_is_the_recipes():
    trained = objective()
    areas = [trained.view_settings(index, VIEWS).crop_area for index in range(trained.views)]
    assert areas == [VIEWS.crop_area, (0.9, 1.0), (0.9, 1.0), (0.2, 0.7), (0.2, 0.7)]


def test_contrasted_views_are_crops_where_the_classified_one_is_a_whole_picture():
    padded = VIEWS.model_copy(update={"crop_rule": "padded"})
    trained = objective()
    rules = [trained.view_settings(index, padded).crop_rule for index in range(trained.views)]
    assert rules == ["padded", *["torchvision"] * 4]


def scores_of(method: SAVC, pictures: Pictures) -> tuple[torch.Tensor, int]:
    """Return the scores, and how many images the network saw for them."""
    seen = []
    hook = method.embedder.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    scores = method.scores(method.embed(pictures))
    hook.remove()
    return scores, sum(seen)


def test_a_prediction_averages_exactly_m_passes():
    method = after_base("savc")
    method.learn(toy_stream().sessions[1].train)
    pictures = toy_stream().sessions[1].test.pictures.take([0, 30])
    scores, images = scores_of(method, pictures)
    assert images == 2 * 2 == len(pictures) * SAVC.passes(method.settings)
    rotated = Pictures.from_array(np.stack([picture[::-1, ::-1] for picture in pictures]))
    plain, upside_down = (method.embedder.embed(p)["g"][:, 0] for p in (pictures, rotated))
    for i in range(2):
        for c in range(8):
            P = method.prototypes[c]
            cosines = [
                torch.cosine_similarity(f, p, 0) for f, p in ((plain[i], P[0]), (upside_down[i], P[1]))
            ]
            assert float(scores[i, c]) == pytest.approx(float(sum(cosines)) / 2, abs=1e-5)


def test_twelve_transforms_cost_twelve_passes_and_need_colours():
    model = ModelSettings(backbone="tiny", size=10)
    settings = SAVCSettings(fantasy="turns_and_colours", queue=4)
    method = SAVC(settings, model, channels=3, base_classes=2)
    pictures = Pictures.from_array(np.random.default_rng(0).integers(0, 255, (4, 10, 10, 3), dtype=np.uint8))
    method.init_classifiers(method.embed(pictures), torch.tensor([0, 1, 0, 1]))
    _, images = scores_of(method, pictures.take([2]))
    assert images == SAVC.passes(settings) == 12
    with pytest.raises(BadSetting, match=r"method\.fantasy"):
        SAVC(settings, model, channels=1, base_classes=2)


def test_mirror_images_are_averaged_within_each_transform():
    model = ModelSettings(backbone="tiny", size=10)
    method = SAVC(SAVCSettings(queue=4), model, channels=3, base_classes=2)
    array = np.random.default_rng(0).integers(0, 255, (3, 10, 10, 3), dtype=np.uint8)
    plain, mirrored = (
        method.embed(Pictures.from_array(each))["g"] for each in (array, array[:, :, ::-1].copy())
    )
    assert plain.shape[:2] == (3, 2)
    method.views = FlipViews(mirror=True)
    torch.testing.assert_close(method.embed(Pictures.from_array(array))["g"], (plain + mirrored) / 2)
