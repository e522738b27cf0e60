"""Groups of runs: which runs make one row, what it is called, and what its recipe says."""

import pytest

from fairshot.recipes import load_recipe
from fairshot.reporting.conditions import conditions, known_titles
from fairshot.reporting.groups import (
    Group,
    Spread,
    backbone_of,
    by_benchmark,
    decision_of,
    group_results,
    parts_of,
    ranked,
)
from fairshot.reporting.names import PARTS
from fairshot.studies.published import published, same_name
from support.results_factory import make_result


def test_seeds_are_averaged_with_their_sample_deviation():
    results = [make_result("sss", seed=seed) for seed in range(3)]
    values = [result.metrics.overall_avg for result in results]
    mean = sum(values) / 3
    deviation = (sum((value - mean) ** 2 for value in values) / 2) ** 0.5
    (group,) = group_results(results)
    assert group.summary(lambda m: m.overall_avg) == Spread(pytest.approx(mean), pytest.approx(deviation))
    assert Spread.of([1.0, None]) is None
    assert Spread.of([1.0, float("inf")]).deviation is None


def test_runs_of_one_method_are_told_apart_by_their_settings():
    recipes = [
        {"method": {"sr": True, "resistance": False, "gamma": 0.2}},
        {"method": {"sr": True, "resistance": True, "gamma": 0.2}},
        {"method": {"sr": False, "resistance": False, "gamma": 0.5}},
    ]

    def labels(method, recipes):
        return [group.label for group in group_results([make_result(method, recipe=r) for r in recipes])]

    assert labels("sss", recipes) == [
        "SSS: SR (gamma 0.2)",
        "SSS: SR + R (gamma 0.2)",
        "SSS: baseline (gamma 0.5)",
    ]
    assert labels("sss", recipes[:2]) == ["SSS: SR", "SSS: SR + R"]
    flags = [{"small_stem": flag} for flag in (True, False)]
    assert labels("c_fscil", flags) == ["C-FSCIL (small stem on)", "C-FSCIL (small stem off)"]
    many = [dict.fromkeys("abcd", i) for i in range(2)]
    assert labels("ncm", many) == ["NCM (a 0, b 0, ...)", "NCM (a 1, b 1, ...)"]
    last = [dict.fromkeys("abc", i) | {"d": d} for i in range(2) for d in range(2)]
    first, second = "NCM (a 0, b 0, ...)", "NCM (a 1, b 1, ...)"
    assert labels("ncm", last) == [f"{first} #1", f"{first} #2", f"{second} #1", f"{second} #2"]
    assert labels("of_a_stranger", [{}]) == ["of_a_stranger"]


def test_runs_on_weights_of_presets_are_called_by_their_names():
    names = ("cub200/ncm-lite0-frozen", "cub200/ncm-lite2-frozen", "cub200/ncm-lite0")
    recipes = [load_recipe(name).as_dict() for name in names]
    recipes.append(load_recipe(names[0], ["model.size=128"]).as_dict())
    groups = group_results([make_result("ncm", recipe=recipe) for recipe in recipes])
    assert [group.label for group in groups] == [
        "NCM (weights efficientnet-lite0, epochs 0)",
        "NCM (weights efficientnet-lite2, epochs 0)",
        "NCM (weights efficientnet-lite0, epochs 60)",
        "NCM (weights efficientnet-lite0, size 128, epochs 0)",
    ]


def test_a_gate_has_a_name_and_its_settings_are_not_listed():
    def labels(*recipes):
        found = group_results([make_result("sss", recipe=recipe.as_dict()) for recipe in recipes])
        return [group.label for group in found]

    paper, gate = load_recipe("cifar100/sss"), load_recipe("cifar100/sss_gate")
    assert labels(paper, gate) == ["SSS", "SSS with gate and mirror images"]
    stronger = load_recipe("cifar100/sss_gate", ["method.gate_strength=0.2"])
    assert labels(paper, gate, stronger) == [
        "SSS",
        "SSS with gate and mirror images (gate strength 0.14)",
        "SSS with gate and mirror images (gate strength 0.2)",
    ]
    calibrated = load_recipe("cifar100/sss_gate", ["method.calibration=true", "method.gate_strength=0.2"])
    assert labels(gate, calibrated) == [
        "SSS with gate and mirror images",
        "SSS with gate, mirror images and Calibration",
    ]


@pytest.mark.parametrize(
    ("recipe", "changes", "name"),
    [
        ("sss", [], "SSS"),
        ("sss", ["mirror=true"], "SSS with mirror images"),
        ("sss", ["gate=unbiased", "gate_strength=1"], "SSS with gate"),
        ("sss", ["whitening=true", "mirror=true"], "SSS with gate and mirror images"),
        ("sss", ["corner_crops=0.8"], "SSS with corner crops"),
        ("sss", ["calibration=true", "threshold=0.7"], "SSS with Calibration"),
        ("sss_bgmm", [], "SSS with mixtures"),
        ("sss_bgmm", ["mirror=true", "calibration=true"], "SSS with mixtures, mirror images and Calibration"),
    ],
)
def test_what_a_reader_knows_has_its_name_alone_and_beside_the_paper(recipe, changes, name):
    paper = load_recipe("cifar100/sss")
    variant = load_recipe(f"cifar100/{recipe}", [f"method.{change}" for change in changes])
    results = [make_result(one.method_name, recipe=one.as_dict()) for one in (variant, paper)]
    assert [group.label for group in group_results(results[:1])] == [name]
    expected = [name, "SSS"] if name != "SSS" else ["SSS"]
    assert [group.label for group in group_results(results)] == expected


def test_the_timing_of_calibration_is_said_in_words():
    timings = [
        [f"method.calibration_timing={each}", "method.calibration=true"] for each in ("before", "after")
    ]
    results = [make_result("sss", recipe=load_recipe("cifar100/sss", each).as_dict()) for each in timings]
    assert [group.label for group in group_results(results)] == [
        "SSS with Calibration (before the answers)",
        "SSS with Calibration (after the answers)",
    ]


def test_an_ablation_lists_the_parts_that_are_on_and_what_else_a_run_has():
    on = ("mirror=true", "calibration=true")
    changes = [["sr=false"], ["sr=false", *on], ["corner_crops=0.8"], ["corner_crops=0.9"]]
    recipes = [load_recipe("cifar100/sss", [f"method.{key}" for key in keys]) for keys in changes]
    groups = group_results([make_result("sss", recipe=recipe.as_dict()) for recipe in recipes])
    assert [group.label for group in groups] == [
        "SSS: Intra + Inter + R",
        "SSS: Intra + Inter + R + C, with mirror images",
        "SSS: Intra + Inter + SR + R, with corner crops (corner crops 0.8)",
        "SSS: Intra + Inter + SR + R, with corner crops (corner crops 0.9)",
    ]


def test_rows_are_ranked_by_harmonic_mean_after_frozen_backbones():
    def result(method, novel, epochs, images=None):
        made = make_result(method, novel=novel, recipe={"training": {"epochs": epochs}})
        return made.model_copy(update={"images": images})

    results = [
        result("teen", 0.3, 3),
        result("ncm", 0.1, 0),
        result("sss", 0.6, 3),
        result("cec", 0.2, 0, images=0),
        result("c_fscil", 0.5, 0, images=900),  # in a further phase
        result("topic", 0.4, 0),  # in its sessions
        result("bidist", 0.05, 0, images=0),  # in its sessions
        result("of_a_stranger", 0.02, 0),  # perhaps
    ]
    labels = [group.label for group in ranked(group_results(results))]
    assert labels == ["CEC", "NCM", "SSS", "C-FSCIL", "TOPIC", "TEEN", "BiDist", "of_a_stranger"]


def test_benchmarks_are_never_mixed():
    groups = group_results([make_result(), make_result(sizes=(4, 1)), make_result(benchmark="cifar100")])
    assert list(by_benchmark(groups)) == ["doodles (4 sessions)", "doodles (2 sessions)", "cifar100"]


def test_own_pictures_of_earlier_versions_are_told_apart_by_their_classes():
    recipe = {"benchmark": {"name": "folder"}}
    first, second = (make_result("ncm", seed, "photos", recipe=recipe) for seed in (0, 1))
    second.class_names.reverse()  # each seed draws which classes are base classes
    other = make_result("ncm", 2, "photos", recipe=recipe)
    other.class_names[0] = "another"
    grouped = by_benchmark(group_results([first, second, other]))
    assert {name: [g.results for g in groups] for name, groups in grouped.items()} == {
        "photos #1": [(first, second)],
        "photos #2": [(other,)],
    }
    longer = make_result("ncm", 3, "photos", (6, 2, 2, 1, 1), recipe=recipe)
    assert list(by_benchmark(group_results([first, longer, other]))) == [
        "photos #1 (4 sessions)",
        "photos #1 (5 sessions)",
        "photos #2",
    ]


def test_a_folder_that_is_called_like_a_benchmark_has_no_published_rows():
    sizes = (60, *[5] * 8)
    (ours,) = group_results([make_result("ncm", benchmark="cifar100", sizes=sizes)])
    (own,) = group_results(
        [make_result("ncm", benchmark="cifar100", sizes=sizes, recipe={"benchmark": {"name": "folder"}})]
    )
    assert (ours.official, own.official) == ("cifar100", "")
    assert published().on("cifar100", 9)
    assert not published().on(own.official, 9)


def test_an_option_that_an_earlier_version_did_not_know_counts_as_its_default():
    recipe = load_recipe("doodles/sss").as_dict()
    earlier = {**recipe, "method": {key: value for key, value in recipe["method"].items() if key != "mirror"}}
    mirrored = {**recipe, "method": recipe["method"] | {"mirror": True}}
    assert len(group_results([make_result(recipe=one) for one in (recipe, earlier)])) == 1
    assert len(group_results([make_result(recipe=one) for one in (recipe, earlier, mirrored)])) == 2


def test_results_tell_their_class_order_and_whether_pictures_are_own():
    def result(benchmark, pictures=""):
        made = make_result(benchmark="cifar100", recipe={"benchmark": benchmark})
        return made.model_copy(update={"pictures": pictures})

    shuffled = result({"name": "cifar100", "class_order_seed": 3})
    assert (shuffled.class_order, shuffled.of_own_pictures) == (3, False)
    for own in (result({"name": "folder"}), result({}, "a digest")):
        assert (own.class_order, own.of_own_pictures) == (None, True)
    strange = result("of another version")
    assert (strange.class_order, strange.of_own_pictures, strange.section("model")) == (None, False, {})


def test_recipes_are_understood():
    def group(method, recipe):
        return Group(method, (make_result(method, recipe=recipe),))

    switches = {"name": "sss", **{part: part in ("intra", "resistance") for part in PARTS}}
    sss = group("sss", {"method": switches, "model": {"backbone": "resnet18"}})
    assert parts_of(sss) == {"intra", "resistance"}
    assert parts_of(group("ncm", {"method": {"name": "ncm"}})) == frozenset()
    assert parts_of(group("teen", {"method": {"alpha": 0.1}})) is None
    assert backbone_of(sss) == "resnet18"
    assert backbone_of(group("sss", {"model": {}})) is None
    assert decision_of(group("sss", {"method": switches | {"decision": "pre"}})) == "pre"
    assert decision_of(sss) == "separately"
    assert same_name("resnet18", "ResNet-18")
    assert not same_name("resnet18", "ResNet-18 (ImageNet weights)")


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("cifar100/sss_gate", "torch initialisation, continuous crops, average 0.9995"),
        ("cifar100/ncm", "torch initialisation, continuous crops, average 0.9995"),
        ("doodles/ncm", "timm initialisation, torchvision crops, no average"),
        ("cifar100/teen_authors", "timm initialisation, padded crops, no average, AutoAugment, Cutout"),
        ("cub200/ncm-lite0", "pretrained, torchvision crops, no average"),
    ],
)
def test_conditions_tell_what_is_no_methods_own(name, engine):
    recipe = load_recipe(name)
    (group,) = group_results([make_result(recipe.method_name, recipe=recipe.as_dict())])
    assert conditions(group).values["engine"] == engine


def test_a_low_resolution_in_the_first_epochs_is_told_where_it_is_on():
    recipes = [
        load_recipe("cifar100/sss").as_dict(),
        load_recipe(
            "cifar100/sss", ["training.low_resolution=24", "training.low_resolution_share=0.7"]
        ).as_dict(),
    ]
    groups = group_results([make_result("sss", recipe=recipe) for recipe in recipes])
    assert [group.label for group in groups] == [
        "SSS",
        "SSS (low resolution 24, low resolution share 0.7)",
    ]
    full, low = (conditions(group).values["engine"] for group in groups)
    assert low == f"{full}, 24 pixels in the first 70 % of the epochs"


def test_conditions_tell_what_is_known_and_that_frozen_networks_take_no_images():
    frozen, trained = (
        conditions(group_results([make_result("ncm", recipe={"training": {"epochs": epochs}})])[0])
        for epochs in (0, 3)
    )
    assert (frozen.values["images"], trained.values["images"]) == ("0", "?")
    assert "images" in known_titles([frozen, trained])
    assert "images" not in known_titles([trained])
    assert "per class" not in known_titles([frozen, trained])


def test_conditions_tell_what_a_class_takes():
    for kept, text in ((None, "?"), (24_720, "2.1 KB"), (12 * 5_678_900, "5,678.9 KB")):
        (group,) = group_results([make_result("ncm").model_copy(update={"kept_bytes": kept})])
        assert conditions(group).values["per class"] == text  # of 12 classes
