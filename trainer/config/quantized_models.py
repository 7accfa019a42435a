"""What `quantization_config` in the config.json of a quantized model says, read and written.

Two layouts that serving engines read: that of GPTQ checkpoints, and compressed-tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trainer.config.problems import DataError, Problem
from trainer.config.values import show

QUANTIZATION = "quantization_config"
#: A whole row has one scale.
WHOLE_ROW = -1
_BITS = (4, 8)
_HINT = "Use a model in GPTQ's layout (symmetric), or int-quantized or pack-quantized by compressed-tensors."


class StoredAs(StrEnum):
    """How the numbers of quantized layers lie in files."""

    GPTQ = "gptq"
    INT_QUANTIZED = "int-quantized"
    PACK_QUANTIZED = "pack-quantized"


@dataclass(frozen=True)
class QuantizationScheme:
    """How the linear layers of a model are quantized and stored. Symmetric, without zero points.

    Attributes:
        stored_as: the layout.
        bits: of weights, 4 or 8.
        group_size: inputs that share a scale; `WHOLE_ROW`: all of a row.
        activations: inputs of the layers are rounded to 8 bits too, with one scale for each layer.
        act_order: groups are not neighbours (GPTQ with activation order).
        damping: what was added to the diagonal of the Hessian (GPTQ); only told.
        zeros_are_lower: GPTQ files hold zero points less 1, as all but those of version 2 do.
    """

    stored_as: StoredAs
    bits: int
    group_size: int = WHOLE_ROW
    activations: bool = False
    act_order: bool = False
    damping: float | None = None
    zeros_are_lower: bool = True

    @classmethod
    def read(cls, content: Any) -> QuantizationScheme:
        """From what a `quantization_config` holds.

        Raises:
            DataError: it is a kind that is not supported; all that is wrong.
        """
        if not isinstance(content, Mapping):
            raise DataError(_problem("", f"got {show(content)}, expected an object"))
        method = content.get("quant_method")
        if method == "gptq":
            return _read_gptq(content)
        if method == "compressed-tensors":
            return _read_compressed(content)
        msg = f"got {show(method)}, expected gptq or compressed-tensors"
        raise DataError(_problem("quant_method", msg))

    def content(self, quantized: list[str], left: list[str], head: str) -> dict[str, Any]:
        """What `quantization_config` says of this.

        Args:
            quantized: paths of the linear layers of decoder layers that are quantized.
            left: paths of those that are not.
            head: path of the head, which is not quantized.
        """
        if self.stored_as is StoredAs.GPTQ:
            return _gptq_content(self, quantized, left)
        return _compressed_content(self, [*left, head])


def _read_gptq(content: Mapping[str, Any]) -> QuantizationScheme:
    bits: Any = content.get("bits")
    group_size: Any = content.get("group_size", WHOLE_ROW)
    form = content.get("checkpoint_format", content.get("format", "gptq"))
    problems = [*_size_problems(bits, group_size, "bits", "group_size")]
    if content.get("sym") is False:
        problems.append(_problem("sym", "got false, expected symmetric weights"))
    if form not in ("gptq", "gptq_v2"):
        problems.append(_problem("checkpoint_format", f"got {show(form)}, expected gptq or gptq_v2"))
    if problems:
        raise DataError(problems)
    return QuantizationScheme(
        StoredAs.GPTQ,
        int(bits),
        int(group_size),
        act_order=bool(content.get("desc_act", False)),
        damping=content.get("damp_percent"),
        zeros_are_lower=form == "gptq",
    )


def _gptq_content(scheme: QuantizationScheme, quantized: list[str], left: list[str]) -> dict[str, Any]:
    content: dict[str, Any] = {
        "quant_method": "gptq",
        "bits": scheme.bits,
        "group_size": scheme.group_size,
        "desc_act": scheme.act_order,
        "sym": True,
        "checkpoint_format": "gptq" if scheme.zeros_are_lower else "gptq_v2",
        "lm_head": False,
    }
    if scheme.damping is not None:
        content["damp_percent"] = scheme.damping
    if left:
        # GPTQModel and vLLM are told of layers that are not quantized, transformers of those that are.
        content["dynamic"] = {f"-:^{re.escape(path)}$": {} for path in left}
        content["modules_in_block_to_quantize"] = [quantized]
    return content


def _read_compressed(content: Mapping[str, Any]) -> QuantizationScheme:
    groups = content.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        number = len(groups) if isinstance(groups, Mapping) else show(groups)
        raise DataError(_problem("config_groups", f"got {number}, expected exactly one group"))
    group = next(iter(groups.values()))
    if not isinstance(group, Mapping) or not isinstance(group.get("weights"), Mapping):
        raise DataError(_problem("config_groups", "has no weights, expected how they are quantized"))
    weights, inputs = group["weights"], group.get("input_activations")
    form = group.get("format") or content.get("format")
    by_group = weights.get("strategy") == "group"
    group_size: Any = weights.get("group_size") if by_group else WHOLE_ROW
    problems = [*_size_problems(weights.get("num_bits"), group_size, "num_bits", "group_size")]
    problems += _weight_problems(weights)
    if inputs is not None:
        problems += _input_problems(inputs)
    if form not in (StoredAs.INT_QUANTIZED, StoredAs.PACK_QUANTIZED):
        problems.append(_problem("format", f"got {show(form)}, expected int-quantized or pack-quantized"))
    if group.get("output_activations") or content.get("kv_cache_scheme"):
        msg = "quantizes outputs or the cache, expected weights and inputs only"
        problems.append(_problem("config_groups", msg))
    if problems:
        raise DataError(problems)
    return QuantizationScheme(StoredAs(form), weights["num_bits"], int(group_size), inputs is not None)


def _compressed_content(scheme: QuantizationScheme, ignored: list[str]) -> dict[str, Any]:
    by_group = scheme.group_size != WHOLE_ROW
    weights = {
        "num_bits": scheme.bits,
        "type": "int",
        "symmetric": True,
        "strategy": "group" if by_group else "channel",
        "group_size": scheme.group_size if by_group else None,
        "dynamic": False,
    }
    inputs = None
    if scheme.activations:
        inputs = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "tensor", "dynamic": False}
    # Its own format, since otherwise the library takes the one it would choose itself.
    group = {
        "targets": ["Linear"],
        "format": str(scheme.stored_as),
        "weights": weights,
        "input_activations": inputs,
        "output_activations": None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": str(scheme.stored_as),
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ignored,
        "kv_cache_scheme": None,
    }


def _size_problems(bits: Any, group_size: Any, bits_name: str, group_name: str) -> Iterator[Problem]:
    if type(bits) is not int or bits not in _BITS:
        yield _problem(bits_name, f"got {show(bits)}, expected 4 or 8")
    if type(group_size) is not int or not (group_size == WHOLE_ROW or group_size > 0):
        yield _problem(group_name, f"got {show(group_size)}, expected -1 or a number above 0")


def _weight_problems(weights: Mapping[str, Any]) -> Iterator[Problem]:
    expected = {"type": ("int",), "symmetric": (True,), "strategy": ("channel", "group")}
    defaults = {"type": "int", "symmetric": True}
    for name, allowed in expected.items():
        value = weights.get(name, defaults.get(name))
        if value not in allowed:
            yield _problem(name, f"got {show(value)} for weights, expected {' or '.join(map(str, allowed))}")
    if weights.get("actorder") not in (None, False, "weight", "static"):
        yield _problem("actorder", f"got {show(weights['actorder'])}, expected groups of neighbours")


def _input_problems(inputs: Any) -> Iterator[Problem]:
    if not isinstance(inputs, Mapping):
        yield _problem("input_activations", f"got {show(inputs)}, expected an object or null")
        return
    expected = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "tensor", "dynamic": False}
    for name, wanted in expected.items():
        value = inputs.get(name, False if name == "dynamic" else wanted)
        if value != wanted:
            msg = f"{name}: got {show(value)}, expected {show(wanted)} (static scales of whole tensors)"
            yield _problem("input_activations", msg)


def _problem(name: str, msg: str) -> Problem:
    where = ("model_name_or_path", "config.json", QUANTIZATION)
    return Problem((*where, name) if name else where, msg, _HINT)
