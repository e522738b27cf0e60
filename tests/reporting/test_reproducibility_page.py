"""The reproducibility page says plainly what is reached, and of what it knows nothing."""

import numpy as np
import pytest

from fairshot.errors import UserError
from fairshot.evaluation.result import Result
from fairshot.methods import methods
from fairshot.recipes import load_recipe
from fairshot.reporting.reproducibility import NO_REASON, write_reproducibility
from fairshot.studies.published import published
from support.commands import fairshot
from support.results_factory import make_even_result, write_run


def page_of(folder, *results: Result) -> str:
    for result in results:
        write_run(folder / f"{result.method}-seed{result.seed}", result, features=False)
    return write_reproducibility(folder).read_text()


def own_average(method: str) -> float:
    (own,) = [row for row in published().of(method, "cifar100", 9) if row.own]
    return float(np.mean(own.overall))


@pytest.mark.parametrize(
    ("above", "verdict"),
    [
        *((0.01, "reached"), (-0.02, "within 1 point: overall by 0.02")),
        *((-0.99, "within 1 point: overall by 0.99"), (-1.02, "not reached: overall by 1.02")),
    ],
)
def test_verdicts_compare_averages_with_the_own_publication(tmp_path, above, verdict):
    target = own_average("teen")
    page = page_of(tmp_path, make_even_result("teen", target + above))
    assert f"| TEEN | {verdict} |  | {target + above:.2f} | {target:.2f} | 62.83 |" in page
    assert f"**{verdict.partition(':')[0].capitalize()}.**" in page
    assert (NO_REASON in page) == (above < -1)


def test_seeds_are_one_row_with_deviation_commands_and_logs(tmp_path):
    page = page_of(tmp_path, *(make_even_result("teen", 60 + seed, seed) for seed in (0, 1, 2)))
    assert (
        "| ours, seeds 0, 1, 2 | ? | 3 | 61.00 ± 1.00 | 61.00 ± 1.00 | 61.00 ± 1.00 | 61.00 ± 1.00 |" in page
    )
    for seed in (0, 1, 2):
        assert f"\n    fairshot run teen --seed {seed}\n" in page
        assert f"`teen-seed{seed}/log.txt`" in page
    assert "Training 13 ± 1 s; sessions 2 ± 0 s, on cpu." in page


def test_a_base_session_that_was_loaded_is_named_in_place_of_its_seconds(tmp_path):
    result = make_even_result("teen", 60)
    update = {"base": "NCM-seed0", "seconds": {"base session": 0.4, "sessions": 1.0}}
    page = page_of(tmp_path, result.model_copy(update=update))
    assert "\nBase session of NCM-seed0; sessions 1 s, on cpu." in page


def test_images_are_a_column_where_they_are_known(tmp_path):
    teen = make_even_result("teen", 60)
    assert "| images |" not in page_of(tmp_path / "unknown", teen)
    known = page_of(tmp_path / "known", teen.model_copy(update={"images": 1234}), make_even_result("ncm", 60))
    assert "| images |" in known
    assert " | 1,234 |" in known
    assert " | ? |" in known


def test_a_method_that_reaches_its_average_by_favouring_base_classes_is_seen(tmp_path):
    (row,) = [row for row in published().of("teen", "cifar100", 9) if row.inc]
    theirs = float(np.mean(row.inc))
    page = page_of(tmp_path, make_even_result("teen", theirs - 7))
    assert f"| {theirs - 7:.2f} | {theirs:.2f} |" in page
    assert "harmonic mean by " in page
    assert "Novel classes are 7.00 points below the published row." in page


def test_without_an_own_row_the_paper_of_sss_counts_and_without_any_nothing(tmp_path):
    page = page_of(
        tmp_path, make_even_result("c_fscil", 70), make_even_result("fcil", 70), make_even_result("cec", 70)
    )
    assert "| CEC | reached |  | 70.00 | 59.53 | 59.53 |" in page  # the same figures in both places
    assert "| C-FSCIL | reached |  | 70.00 |  | 61.64 |" in page
    assert "above the row in the paper of SSS" in page
    assert "| FCIL | no published figures known to us |  | 70.00 |  |  | 70.00 |  |" in page
    assert page.count("own publication: no row known to us") == 2
    assert page.count("paper of SSS: no row known to us") == 1


def test_what_is_unlike_the_published_row_stands_beside_the_verdict(tmp_path):
    gated = load_recipe("cifar100/sss_gate", ["model.backbone=resnet20"]).as_dict()
    pretrained = load_recipe(
        "cifar100/teen", ["model.pretrained=true", "model.initialisation=timm"]
    ).as_dict()
    page = page_of(
        tmp_path, make_even_result("sss", 80, recipe=gated), make_even_result("teen", 80, recipe=pretrained)
    )
    unlike = "gate, mirror images, resnet20 in place of ResNet-18, no unlabelled test images"
    assert f"| SSS with gate and mirror images | reached | {unlike} | 80.00 |" in page
    assert f"**Reached.** Unlike the published row: {unlike}. The average" in page
    assert (
        "| TEEN | not comparable: our backbone began with weights resnet18 of timm, learnt from ImageNet;"
        in page
    )
    assert "**Not comparable.** Our backbone began with" in page
    assert "| ours, seed 0 | resnet18 (ImageNet weights) |" in page


def test_shuffled_classes_are_not_compared_with_the_official_order(tmp_path):
    shuffled = make_even_result("teen", 70)
    shuffled.recipe["benchmark"] = {"class_order_seed": 3}
    assert "no published figures known to us" in page_of(tmp_path, shuffled)


def test_reasons_are_taken_from_the_file_beside_the_runs(tmp_path):
    (tmp_path / "verdicts.yaml").write_text("teen: Fewer epochs than its authors.\n")
    assert "Fewer epochs than its authors." in page_of(tmp_path, make_even_result("teen", 50))
    for text, complaint in (
        ("fact: x\n", "no run here is of fact"),
        ("[", "not YAML"),
        ("- a\n", "expected"),
    ):
        (tmp_path / "verdicts.yaml").write_text(text)
        with pytest.raises(UserError, match=complaint):
            write_reproducibility(tmp_path)


def test_published_names_are_found_for_our_methods():
    found = {name for name in methods() if published().of(name, "cifar100", 9)}
    assert found == {
        "alice",
        "c_fscil",
        "cec",
        "fact",
        "nc_fscil",
        "savc",
        "sss",
        "sss_bgmm",
        "teen",
        "topic",
    }
    assert published().of("sss", "cifar100", 9)[0].method == "SSS (prototype)"
    assert published().of("sss_bgmm", "cifar100", 9)[0].method == "SSS (BGMM)"
    assert all(published().of(name, "cifar100", 9)[0].own for name in ("cec", "nc_fscil"))


def test_the_command_writes_the_page(tmp_path):
    write_run(tmp_path / "runs" / "teen-seed0", make_even_result("teen", 61), features=False)
    (tmp_path / "runs" / "broken").mkdir()
    command = fairshot(tmp_path, "reproducibility", "runs")
    assert command.process.exitcode == 0, command.stderr
    page = (tmp_path / "runs" / "REPRODUCIBILITY.md").read_text()
    assert "Written by `fairshot reproducibility runs`" in page
    assert fairshot(tmp_path, "reproducibility", "nowhere").process.exitcode == 2
