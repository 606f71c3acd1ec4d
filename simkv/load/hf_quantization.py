"""Translate a Hugging Face ``quantization_config``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from simkv.errors import ScenarioError


def quantization_fields(config: Mapping[str, Any] | None, source: str) -> dict[str, Any] | None:
    """Translate a `quantization_config`; a scale for a block of 128 × 128 is a group of 16,384.

    Raises ScenarioError if it is of a kind that is not modelled.
    """
    scheme = _scheme(config, source) if config else None
    if scheme and config and _leaves_attention_alone(config):
        scheme["scope"] = "experts"
    return scheme


def _leaves_attention_alone(config: Mapping[str, Any]) -> bool:
    """True if no layer's attention is quantised: then the experts are.

    Quantisers say so by a pattern for all layers or by naming every layer; a single layer's name is not enough.
    """
    keys = ("ignore", "modules_to_not_convert", "exclude_modules")
    ignored = next((config[key] for key in keys if config.get(key)), ())
    attention = [str(name) for name in ignored if "self_attn" in str(name)]
    return any("*" in name and not re.search(r"\.\d+\.", name) for name in attention) or len(attention) > 8


def _scheme(config: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The method of a `quantization_config` with its groups; raise ScenarioError if it is of another kind."""
    algorithm = str(config.get("quant_algo", "")).lower()  # modelopt
    method = str(config.get("quant_method", algorithm)).lower()
    group_size = config.get("group_size", config.get("q_group_size", 0))
    groups = (config.get("config_groups") or {}).values()
    schemes = [_compressed_tensors(group) for group in groups]
    if method in ("fp8", "fbgemm_fp8") or algorithm == "fp8":
        return {"method": "fp8", "group_size": _block(config.get("weight_block_size"))}
    if algorithm == "nvfp4":
        return {"method": "nvfp4", "group_size": 16}
    if method == "mxfp4":
        return {"method": "mxfp4", "group_size": 32}
    if method.startswith(("awq", "gptq")) and config.get("bits", config.get("w_bit", 4)) == 4:
        scheme = {"method": "w4a16", "group_size": group_size if group_size > 0 else None}
        return scheme | ({"has_zero_points": True} if method.startswith("awq") else {})
    if schemes and schemes[0] and all(scheme == schemes[0] for scheme in schemes):
        return dict(schemes[0])
    raise ScenarioError(
        f"{source}: quantization_config: wanted fp8, int8 weights and activations, 4-bit AWQ or GPTQ, mxfp4 "
        f"or nvfp4, got {method or 'no quant_method'!r} of another kind"
    )


def _compressed_tensors(group: Mapping[str, Any]) -> dict[str, Any] | None:
    """One group of a compressed-tensors config; None if its kind is not modelled."""
    weights = group.get("weights") or {}
    group_size = weights.get("group_size") or _block(weights.get("block_structure"))
    methods = {
        ("float", 8, True): "fp8",
        ("int", 8, True): "w8a8",
        ("int", 4, False): "w4a16",
        ("float", 4, True): "nvfp4" if group_size == 16 else "mxfp4",
    }
    kind = (weights.get("type"), weights.get("num_bits"), group.get("input_activations") is not None)
    return {"method": methods[kind], "group_size": group_size} if kind in methods else None


def _block(shape: Sequence[int] | None) -> int | None:
    """The weights of a two-dimensional block that share one scale."""
    return shape[0] * shape[1] if shape else None
