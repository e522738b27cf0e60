"""Embed with one small model of every family of timm: which give features, which are refused, and why.

python scripts/embed_timm_families.py [FAMILY...]; a family is a file of timm/models. It takes minutes of one
core. The tests measure the width of all of them without weights, and embed with some.
"""

from __future__ import annotations

import sys
import time

import timm
import torch

from fairshot.errors import UserError
from fairshot.models.backbones import model_settings
from fairshot.models.embedder import Embedder

SMALLEST = {  # of each family, by its parameters and the pixels of its input
    "beit": "beit_base_patch16_224",
    "byoanet": "halonet_h1",
    "byobnet": "mobileone_s1",
    "cait": "cait_xxs24_224",
    "coat": "coat_tiny",
    "convit": "convit_tiny",
    "convmixer": "convmixer_768_32",
    "convnext": "convnext_atto",
    "crossvit": "crossvit_tiny_240",
    "cspnet": "cs3darknet_focus_s",
    "davit": "davit_tiny",
    "deit": "deit_tiny_patch16_224",
    "densenet": "densenet121",
    "dla": "dla46x_c",
    "dpn": "dpn48b",
    "edgenext": "edgenext_xx_small",
    "efficientformer": "efficientformer_l1",
    "efficientformer_v2": "efficientformerv2_s0",
    "efficientnet": "tinynet_e",
    "efficientvit_mit": "efficientvit_b0",
    "efficientvit_msra": "efficientvit_m0",
    "eva": "eva02_tiny_patch14_224",
    "fasternet": "fasternet_t0",
    "fastvit": "fastvit_t8",
    "focalnet": "focalnet_tiny_srf",
    "gcvit": "gcvit_xxtiny",
    "ghostnet": "ghostnet_050",
    "hardcorenas": "hardcorenas_a",
    "hgnet": "hgnetv2_b0",
    "hiera": "hiera_tiny_224",
    "hieradet_sam2": "sam2_hiera_tiny",
    "hrnet": "hrnet_w18_small",
    "inception_next": "inception_next_atto",
    "levit": "levit_128s",
    "mambaout": "mambaout_femto",
    "maxxvit": "coatnet_pico_rw_224",
    "metaformer": "poolformer_s12",
    "mlp_mixer": "gmlp_ti16_224",
    "mobilenetv3": "mobilenetv4_conv_small_035",
    "mobilevit": "mobilevitv2_050",
    "mvitv2": "mvitv2_tiny",
    "nest": "nest_tiny",
    "nextvit": "nextvit_small",
    "nfnet": "nf_regnet_b0",
    "pit": "pit_ti_224",
    "pvt_v2": "pvt_v2_b0",
    "rdnet": "rdnet_tiny",
    "regnet": "regnetx_002",
    "repghost": "repghostnet_050",
    "repvit": "repvit_m0_9",
    "res2net": "res2net50_48w_2s",
    "resnest": "resnest14d",
    "resnet": "resnet10t",
    "resnetv2": "resnetv2_18",
    "rexnet": "rexnet_100",
    "selecsls": "selecsls42",
    "senet": "legacy_seresnet18",
    "sequencer": "sequencer2d_s",
    "shvit": "shvit_s1",
    "sknet": "skresnet18",
    "starnet": "starnet_s1",
    "swiftformer": "swiftformer_xs",
    "swin_transformer": "swin_tiny_patch4_window7_224",
    "swin_transformer_v2": "swinv2_tiny_window8_256",
    "swin_transformer_v2_cr": "swinv2_cr_tiny_224",
    "tiny_vit": "tiny_vit_5m_224",
    "tnt": "tnt_s_patch16_224",
    "tresnet": "tresnet_m",
    "twins": "twins_pcpvt_small",
    "vgg": "vgg11",
    "visformer": "visformer_tiny",
    "vision_transformer": "vit_tiny_patch16_224",
    "vision_transformer_hybrid": "vit_tiny_r_s16_p8_224",
    "vision_transformer_relpos": "vit_relpos_small_patch16_224",
    "vision_transformer_sam": "samvit_base_patch16_224",
    "vitamin": "vitamin_small_224",
    "volo": "volo_d1_224",
    "vovnet": "ese_vovnet19b_slim_dw",
    "xception_aligned": "xception41",
    "xcit": "xcit_nano_12_p16_224",
}


def main(families: list[str]) -> None:
    """Print a line for each family, and how many there were of each outcome."""
    widths: dict[str, str] = {}
    torch.manual_seed(0)
    for family in families:
        # a family newer than this list, or of one model, is tried with its first
        name = SMALLEST.get(family) or timm.list_models(module=family)[0]
        began = time.process_time()
        try:
            settings = model_settings(name).without_weights()
            embedder = Embedder(settings, 3)
            recorded = getattr(embedder.backbone, "num_features", None)
            widths[family] = "embeds" if embedder.width == recorded else "embeds, num_features differs"
            text = f"{embedder.width} features at {settings.size} pixels (num_features {recorded})"
        except UserError as problem:
            widths[family], text = "refused", str(problem)
        print(f"{family:26} {name:32} {time.process_time() - began:5.1f} s  {text}", flush=True)
    for outcome in sorted(set(widths.values())):
        print(f"{outcome}: {list(widths.values()).count(outcome)}")


if __name__ == "__main__":
    main(sys.argv[1:] or sorted(timm.list_modules()))
