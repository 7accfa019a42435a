"""Post-training quantization."""

from typing import Annotated, Literal

from pydantic import BeforeValidator

from trainer.config.fields.base import FieldGroup
from trainer.config.standing import no_effect, refused, setting
from trainer.config.values import Expect, Flag, Real, Text, TextList, Whole, read_list

MOST_PIECES = 32
"""The search takes that many times as long as with one piece, and finds little more than with three."""

Fp8Types = Annotated[
    list[Literal["e4m3", "e5m2"]], BeforeValidator(read_list), Expect("a list out of e4m3, e5m2")
]


class QuantizationFields(FieldGroup):
    """What to quantize and how."""

    do_ptq: Flag = setting(False, "Post-training quantization with calibrated ranges.")
    do_gptq: Flag = setting(False, "GPTQ.")
    do_awq: Flag = setting(False, "AWQ.")
    do_qat: Flag = setting(
        False, "Quantization-aware training.", refused("quantization-aware training is not offered")
    )
    quant_type: Literal["a8w8", "weight_only_int8", "weight_only_int4", "a8w8c8", "a8w8_fp8"] = setting(
        "a8w8",
        "Number formats of activations and weights; do_gptq and do_awq make 8-bit weights with "
        "weight_only_int8, else 4-bit ones.",
    )
    fp8_type: Fp8Types = setting(
        ["e4m3", "e4m3"], "fp8 formats of activations and weights.", no_effect("a8w8_fp8 is not offered")
    )
    skip_list_names: TextList = setting(
        [], "Layers that are not quantized, by name (`dense`) or pattern of paths (`*.h.0.*`)."
    )
    weight_quant_method: Literal["abs_max_channel_wise", "groupwise"] = setting(
        "abs_max_channel_wise", "Granularity of weight scales."
    )
    act_quant_method: Literal["avg", "abs_max"] = setting("avg", "How activation ranges are observed.")
    cachekv_quant_method: Literal["avg_headwise", "abs_max_headwise"] = setting(
        "avg_headwise", "How ranges of the key/value cache are observed.", no_effect("a8w8c8 is not offered")
    )
    search_alpha_min: Real = setting(0.2, "Smallest alpha of the piecewise search.", ge=0, le=1)
    search_alpha_max: Real = setting(0.8, "Largest alpha of the piecewise search.", ge=0, le=1)
    search_scale_min: Real = setting(1.0, "Smallest scale of the piecewise search.", gt=0)
    search_scale_max: Real = setting(5.0, "Largest scale of the piecewise search.", gt=0)
    ptq_step: Whole = setting(32, "Calibration batches of PTQ.", ge=1)
    gptq_step: Whole = setting(8, "Calibration batches of GPTQ.", ge=1)
    awq_step: Whole = setting(8, "Calibration batches of AWQ.", ge=1)
    auto_clip: Flag = setting(False, "Search clipping ranges of weights.")
    autoclip_step: Whole = setting(
        8, "Calibration batches of that search.", no_effect("it uses those of the method"), ge=1
    )
    shift: Flag = setting(False, "Move activations to a zero mean first.")
    shift_all_linears: Flag = setting(False, "Do so in every linear layer.")
    shift_sampler: Literal["ema", "none"] = setting("ema", "How shifts are sampled.")
    shift_step: Whole = setting(32, "Calibration batches of the shift.", ge=1)
    smooth: Flag = setting(False, "Move activation outliers into weights first (SmoothQuant).")
    smooth_all_linears: Flag = setting(False, "Do so in every linear layer.")
    smooth_sampler: Literal["none", "multi_step"] = setting("none", "How smoothing is sampled.")
    smooth_step: Whole = setting(32, "Calibration batches of smoothing.", ge=1)
    smooth_piecewise_search: Flag = setting(False, "Search a scale for each piece of channels.")
    smooth_k_piece: Whole = setting(3, "Pieces of channels.", ge=1, le=MOST_PIECES)
    smooth_search_piece: Flag = setting(False, "Search the best number of pieces up to smooth_k_piece.")
    load_quant_model: Flag = setting(
        False, "Start from a quantized model.", refused("a quantized model is not quantized again")
    )
    do_quant_debug: Flag = setting(
        False, "Print layer differences.", no_effect("errors of layers are always reported")
    )
    test_sample: Text | None = setting(None, "Text to try the model on.", no_effect("nothing is generated"))
