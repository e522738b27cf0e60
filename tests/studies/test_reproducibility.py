"""Verdicts compare our averages with what was published, and with nothing else."""

import pytest

from fairshot.evaluation.result import Result
from fairshot.evaluation.starting_weights import UNKNOWN_PICTURES, StartingWeights
from fairshot.studies.published import NOT_STATED, published
from fairshot.studies.reproducibility import judge
from support.results_factory import CIFAR_SIZES, make_even_result, make_result

CUB_SIZES = (100, *[10] * 10)
LITE2 = {"backbone": "tf_efficientnet_lite2", "weights": "efficientnet-lite2"}


def test_the_mean_over_seeds_is_compared_with_the_own_publication():
    (own,) = [row for row in published().of("teen", "cifar100", 9) if row.own]
    verdict = judge(
        [make_even_result("teen", own.average + above, seed) for seed, above in enumerate((-2.0, 1.0))]
    )
    assert verdict.own == own
    assert verdict.rerun is not None
    assert verdict.gaps["overall"] == pytest.approx(-0.5)
    assert (verdict.text, verdict.missed) == ("within 1 point", "overall by 0.50")
    assert judge([make_even_result("teen", own.average - 1.02)]).text == "not reached"
    assert judge([make_even_result("teen", own.average)]).text == "reached"


def with_accuracies(base: list[int], novel: list[int]) -> Result:
    """SSS on CIFAR-100, with accuracies of base and of novel classes in percent, from session 0 and 1 on."""
    result = make_even_result("sss", 50)
    for matrix, of_base, of_novel in zip(result.confusions, base, [0, *novel], strict=True):
        for row, line in enumerate(matrix):
            right = of_base if row < 60 else of_novel
            line[:] = [0] * len(line)
            line[row], line[row - 1] = right, 100 - right
    return result


def test_a_row_is_reached_only_if_its_harmonic_mean_is():
    row = published().of("sss", "cifar100", 9)[0]
    verdict = judge([with_accuracies([85] * 9, [45] * 8)])
    assert verdict.gaps["overall"] > 0
    expected = []
    for t, (overall, novel) in enumerate(zip(row.overall[1:], row.inc, strict=True), start=1):
        base = (overall * (60 + 5 * t) - novel * 5 * t) / 60
        expected.append(2 / (1 / base + 1 / novel))
    theirs = sum(expected) / 8
    assert verdict.published_harmonic == pytest.approx(theirs)
    missed = round(theirs, 2) - round(2 / (1 / 85 + 1 / 45), 2)
    assert verdict.gaps["harmonic mean"] == pytest.approx(-missed)
    assert (verdict.text, verdict.missed) == ("not reached", f"harmonic mean by {missed:.2f}")
    assert judge([with_accuracies([85] * 9, [60] * 8)]).text == "reached"
    both = judge([with_accuracies([79, *[73] * 8], [52] * 8)])
    assert both.text == "within 1 point"
    assert set(both.gaps) == {"overall", "harmonic mean"}
    assert all(-1 <= gap < 0 for gap in both.gaps.values())


def test_the_harmonic_mean_of_a_run_follows_from_its_overall_and_novel_accuracies():
    result = make_result(benchmark="cifar100", sizes=(60, *[5] * 8), per_class=100)
    sessions = result.metrics.sessions
    row = published().of("sss", "cifar100", 9)[0]
    printed = row.model_copy(
        update={"overall": [one.overall for one in sessions], "inc": [one.inc for one in sessions[1:]]}
    )
    images = judge([result]).images
    assert images == [6000, *[500] * 8]
    assert printed.harmonic_average(images) == pytest.approx(result.metrics.harmonic_mean_avg)


@pytest.mark.parametrize(
    "recipe", [{"benchmark": {"name": "folder"}}, {"benchmark": {"name": "cifar100", "class_order_seed": 3}}]
)
def test_own_pictures_and_shuffled_classes_have_no_published_rows(recipe):
    verdict = judge([make_even_result("teen", 60, recipe=recipe)])
    assert (verdict.own, verdict.rerun, verdict.gaps) == (None, None, {})


def judged(benchmark: str, model: dict, epochs: int = 3, method: str = "sss"):
    """Judge a run whose figures are far above every published one."""
    sizes = CUB_SIZES if benchmark == "cub200" else CIFAR_SIZES
    recipe = {"model": model, "training": {"epochs": epochs}}
    return judge([make_result(method, 0, benchmark, sizes, base=0.97, novel=0.95, recipe=recipe)])


@pytest.mark.parametrize(
    ("benchmark", "model", "named"),
    [
        ("mini_imagenet", LITE2, ("efficientnet-lite2", "ImageNet", "was trained from scratch")),
        ("mini_imagenet", {"backbone": "resnet18", "pretrained": True}, ("resnet18 of timm", "ImageNet")),
        ("cifar100", {"weights": "/home/me/mine.pt"}, ("weights mine.pt", "not known")),
        ("cub200", {"backbone": "resnet18"}, ("backbone was trained from scratch", "ImageNet weights")),
        ("cub200", {"weights": "dinov2-small"}, ("dinov2-small", "LVD-142M", "ImageNet weights")),
    ],
)
def test_weights_of_other_pictures_than_the_published_row_began_with_reach_nothing(benchmark, model, named):
    verdict = judged(benchmark, model)
    assert min(verdict.gaps.values()) > 10
    assert verdict.text == "not comparable"
    assert all(words in verdict.obstacle for words in named)
    assert "/home" not in verdict.obstacle


def test_another_backbone_that_began_alike_is_judged_and_named():
    published_backbone = {"backbone": "resnet18", "pretrained": True}
    verdicts = [judged("cub200", model, method="teen") for model in (LITE2, published_backbone)]
    assert [(one.text, one.obstacle) for one in verdicts] == [("reached", "")] * 2
    assert [one.differences for one in verdicts] == [["tf_efficientnet_lite2 in place of ResNet-18"], []]
    assert judged("cub200", LITE2, epochs=0, method="teen").differences[1:] == ["nothing trained"]
    assert judged("cifar100", {"backbone": "resnet20"}, method="teen").differences == []
    assert judged("cifar100", {}, method="teen").differences == []


@pytest.mark.parametrize(
    ("backbone", "pictures"),
    [
        ("tf_efficientnet_lite0", "ImageNet"),
        ("resnet18.a1_in1k", "ImageNet"),
        ("vit_base_patch16_224.mae_in1k_ft_in1k", "ImageNet"),
        ("vit_base_patch16_224.augreg_in21k", "ImageNet-21k"),
        ("resnet50d.sw_in12k_ft_in1k", "ImageNet-21k"),
        ("vit_small_patch14_dinov2.lvd142m", "LVD-142M"),
        ("resnet18.fb_swsl_ig1b_ft_in1k", UNKNOWN_PICTURES),
        ("vit_base_patch16_clip_224.laion2b_ft_in12k_in1k", UNKNOWN_PICTURES),
        ("tf_efficientnet_b0.ns_jft_in1k", UNKNOWN_PICTURES),
        ("of_a_stranger", UNKNOWN_PICTURES),
    ],
)
def test_the_tag_of_timms_weights_says_from_which_pictures_they_were_learnt(backbone, pictures):
    verdict = judged("cub200", {"backbone": backbone, "pretrained": True}, method="teen")
    assert verdict.weights == StartingWeights(f"{backbone} of timm", pictures)
    assert (verdict.text == "reached") == (pictures == "ImageNet")


def test_the_tag_of_weights_and_a_backbone_that_is_not_stated_are_no_difference():
    tagged = {"backbone": "resnet18.a1_in1k", "pretrained": True}
    assert judged("cub200", tagged, method="teen").differences == []
    other = {"backbone": "tf_efficientnet_lite0.in1k", "pretrained": True}
    assert judged("cub200", other, method="teen").differences == [
        "tf_efficientnet_lite0 in place of ResNet-18"
    ]
    verdict = judge(
        [make_result("fcil", 0, "mini_imagenet", CIFAR_SIZES, recipe={"model": {"backbone": "resnet18"}})]
    )
    assert verdict.row.backbone == NOT_STATED
    assert verdict.differences == []


def test_unlabelled_test_images_are_compared_like_with_like():
    def verdict(method: str, transductive: bool):
        result = make_even_result(method, 90)
        return judge([result.model_copy(update={"transductive": transductive})])

    without = verdict("sss", transductive=False)
    assert (without.text, without.differences) == ("reached", ["no unlabelled test images"])
    calibrated = verdict("sss", transductive=True)
    assert (calibrated.text, calibrated.differences) == ("reached", [])
    helped = verdict("teen", transductive=True)
    assert (helped.text, verdict("teen", transductive=False).text) == ("not comparable", "reached")
    assert "unlabelled" in helped.obstacle
