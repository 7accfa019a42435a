"""Rules between the arguments of task quantize, as in `trainer.config.rules`."""

from collections.abc import Iterator
from typing import Any

from trainer.config.problems import Problem
from trainer.config.rulebook import problem, warning
from trainer.config.values import show

#: What weights and activations become; the other types are PaddleNLP's.
QUANT_TYPES = ("a8w8", "weight_only_int8", "weight_only_int4")

#: Options that do something only together with a switch.
OPTIONS_OF = {
    "do_ptq": ("ptq_step", "smooth", "shift"),
    "do_gptq": ("gptq_step",),
    "do_awq": ("awq_step",),
    "shift": ("shift_all_linears", "shift_sampler", "shift_step"),
    "smooth": ("smooth_all_linears", "smooth_sampler", "smooth_step", "smooth_piecewise_search"),
    "smooth_piecewise_search": (
        *("smooth_k_piece", "smooth_search_piece"),
        *("search_alpha_min", "search_alpha_max", "search_scale_min", "search_scale_max"),
    ),
}


@problem("do_train", "do_ptq", "do_gptq", "do_awq", "do_qat")
def one_kind_of_quantization(config: Any) -> Iterator[Problem]:
    flags = ("do_train", "do_ptq", "do_gptq", "do_awq", "do_qat")
    chosen = [flag for flag in flags if getattr(config, flag)]
    if len(chosen) > 1:
        msg = f"{' and '.join(chosen)} are all true, expected one: a job does one thing"
        yield Problem((chosen[0],), msg, "Send one job for each.")
    elif not chosen:
        yield Problem(("do_ptq",), "no kind of quantization is chosen", "Set one of do_ptq, do_gptq, do_awq.")
    elif chosen == ["do_train"]:
        yield Problem(("do_train",), "task quantize does not train", "Use task finetune for training.")


@problem("do_gptq", "shift", "smooth")
def gptq_stands_alone(config: Any) -> Iterator[Problem]:
    with_it = [name for name in ("shift", "smooth") if getattr(config, name)]
    if config.do_gptq and with_it:
        yield Problem(
            (with_it[0],),
            f"do_gptq cannot be combined with {' and '.join(with_it)}",
            "They belong to do_ptq.",
        )


@problem("search_alpha_min", "search_alpha_max", "search_scale_min", "search_scale_max")
def search_ranges_are_not_empty(config: Any) -> Iterator[Problem]:
    for kind in ("alpha", "scale"):
        low, high = getattr(config, f"search_{kind}_min"), getattr(config, f"search_{kind}_max")
        if low > high:
            name = f"search_{kind}_min"
            yield Problem((name,), f"got {low}, expected at most search_{kind}_max {high}", "Swap them.")


@problem("do_awq", "shift", "smooth")
def awq_stands_alone(config: Any) -> Iterator[Problem]:
    with_it = [name for name in ("shift", "smooth") if getattr(config, name)]
    if config.do_awq and with_it:
        msg = f"do_awq cannot be combined with {' and '.join(with_it)}: it finds factors of its own"
        yield Problem((with_it[0],), msg, "They belong to do_ptq.")


@problem("quant_type")
def a_known_number_format(config: Any) -> Iterator[Problem]:
    if config.quant_type not in QUANT_TYPES:
        msg = f"got {config.quant_type}, expected one of {', '.join(QUANT_TYPES)}:"
        msg += " neither a quantized cache nor fp8 numbers are offered"
        yield Problem(("quant_type",), msg, "Use for example a8w8.")


@problem("do_ptq", "prefix_tuning", "lora", "lora_path")
def a_whole_model_is_quantized(config: Any) -> Iterator[Problem]:
    if config.prefix_tuning:
        msg = "a prefix cannot be quantized with its model"
        yield Problem(("prefix_tuning",), msg, "Quantize the model alone.")
    if config.lora and not config.lora_path:
        msg = "true without lora_path, and task quantize trains no adapter"
        yield Problem(("lora",), msg, "Name the adapter to merge in lora_path, or set lora to false.")


@warning("do_ptq", "quant_type", "act_quant_method")
def options_of_another_quantization(config: Any) -> Iterator[Problem]:
    fields = type(config).model_fields
    for switch, options in OPTIONS_OF.items():
        if getattr(config, switch):
            continue
        for name in options:
            value = getattr(config, name)
            if value != fields[name].get_default(call_default_factory=True) and not _refused(config, name):
                msg = f"{show(value)} has no effect: {switch} is false"
                yield Problem((name,), msg, f"Set {switch} to true, or leave it out.")
    if config.auto_clip and config.do_gptq:
        msg = "true has no effect with do_gptq, whose rounding makes up for errors itself"
        yield Problem(("auto_clip",), msg, "Leave it out.")
    if config.do_awq and config.weight_quant_method != fields["weight_quant_method"].default:
        msg = "groupwise says what is done anyway: AWQ always has scales for groups"
        yield Problem(("weight_quant_method",), msg, "Leave it out.")
    method = config.act_quant_method
    if method != fields["act_quant_method"].default and not (config.do_ptq and config.quant_type == "a8w8"):
        msg = f"{method} has no effect: activations are rounded by do_ptq with quant_type a8w8 only"
        yield Problem(("act_quant_method",), msg, "Leave it out.")


def _refused(config: Any, name: str) -> bool:
    """Whether another rule refuses it."""
    return name in ("shift", "smooth") and (config.do_gptq or config.do_awq)
