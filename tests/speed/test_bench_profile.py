"""The profile of a training step: which part an operation belongs to, and a whole small one."""

import re

import pytest
from typer.testing import CliRunner

from fairshot.cli import app
from fairshot.recipes import load_recipe
from fairshot.speed.profile import PARTS, measure_parts, part_of, summed
from fairshot.speed.train import random_pictures
from fairshot.training.hardware import choose_hardware

SMALL = ["training.batch=8", "model.size=8", "method.sr_width=16"]


@pytest.mark.parametrize(
    ("name", "part"),
    [  # kernels of a GPU, compiled and of libraries, and operations of a CPU
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32", "convolutions, forward"),
        ("sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32", "convolutions, gradient of images"),
        ("cutlass__5x_cudnn::Kernel<wgrad2d_grouped_direct>", "convolutions, gradient of weights"),
        ("aten::mkldnn_convolution", "convolutions, forward"),
        ("aten::convolution_backward", "convolutions, backward"),
        ("triton_poi_fused__native_batch_norm_legit_functional_relu_5", "batch norm and ReLU, forward"),
        (
            "triton_red_fused_native_batch_norm_backward_threshold_backward_12",
            "batch norm and ReLU, backward",
        ),
        (
            "triton_poi_fused__native_batch_norm_legit_functional_convolution_backward_native_batch_norm_backward_8",
            "batch norm and ReLU, backward",
        ),
        ("triton_per_fused__log_softmax__log_softmax_backward_data_3", "loss"),
        ("nvjet_tst_128x256_64x4", "matrix products of SR and head"),
        ("aten::addmm", "matrix products of SR and head"),
        ("void at::native::multi_tensor_apply_kernel<FusedSgdMath>", "optimiser and averaged weights"),
        ("aten::_fused_sgd_", "optimiser and averaged weights"),
        ("aten::lerp_", "optimiser and averaged weights"),  # of averages, on a CPU
        ("triton_poi_fused__to_copy_add_clamp_floor_index_lerp_mul_sub_2", "views"),
        ("aten::index", "views"),
        ("Memcpy DtoD (Device -> Device)", "copies"),
        ("void cudnn::engines_precompiled::nhwcToNchwKernel<__nv_bfloat16>", "copies"),
        ("triton_poi_fused_add_7", "other"),
    ],
)
def test_operations_belong_to_parts_by_their_names(name, part):
    assert part_of(name) == part


def test_times_of_a_part_are_summed_and_the_longest_comes_first():
    rows = summed([("aten::addmm", 1.0), ("aten::convolution_backward", 5.0), ("aten::mm", 2.0)])
    found = [(row.part, row.milliseconds, row.share) for row in rows]
    assert found == [
        ("convolutions, backward", 5.0, 0.625),
        ("matrix products of SR and head", 3.0, 0.375),
    ]


def test_a_step_has_its_parts():
    recipe = load_recipe("doodles/sss", SMALL)
    parts = measure_parts(recipe, choose_hardware("cpu"), random_pictures(recipe, classes=3, images=24))
    assert sum(row.share for row in parts) == pytest.approx(1)
    named = {row.part for row in parts if row.milliseconds > 0}
    of_a_gpu = {"convolutions, gradient of weights", "convolutions, gradient of images"}
    assert set(PARTS) - of_a_gpu <= named


def test_the_command_prints_them_with_their_sum():
    small = [word for change in SMALL for word in ("--set", change)]
    command = ["bench", "profile", "doodles/sss", "--device", "cpu", "--images", "24", *small]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "a training step of doodles/sss" in done.output
    assert re.search(r"convolutions, backward\W+\d+\.\d\d\W+\d+\.\d%", done.output)
    assert re.search(r"\ball\W+\d+\.\d\d\W*\n", done.output)
