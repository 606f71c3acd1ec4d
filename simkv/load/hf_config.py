"""Translate a Hugging Face ``config.json`` into a ModelSpec, with what its family's code leaves unsaid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from simkv.errors import ScenarioError
from simkv.load.hf_quantization import quantization_fields
from simkv.spec.model import ModelSpec

REQUIRED = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size",
    "max_position_embeddings",
)  # fmt: skip
# What a family's modelling code does and its config.json need not say. Keys are `model_type`s.
FAMILY_DEFAULTS: dict[str, dict[str, Any]] = {
    "qwen2": {"attention_bias": True},
    "qwen2_moe": {"attention_bias": True},
    "qwen2_5_vl_text": {"attention_bias": True},
    "qwen3": {"has_qk_norm": True},
    "qwen3_moe": {"has_qk_norm": True},
    "qwen3_vl_text": {"has_qk_norm": True},
    "qwen3_vl_moe_text": {"has_qk_norm": True},
    "gemma": {"tie_word_embeddings": True, "head_dim": 256},
    "gemma2": {"tie_word_embeddings": True, "head_dim": 256, "sliding_window_pattern": 2},
    "gemma3_text": {
        "tie_word_embeddings": True, "head_dim": 256, "has_qk_norm": True, "sliding_window_pattern": 6,
        "vocab_size": 262_208, "max_position_embeddings": 131_072, "num_attention_heads": 8,
        "num_key_value_heads": 4,
    },
    "gpt_oss": {"attention_bias": True, "mlp_bias": True, "sliding_window_pattern": 2},
    "llama4_text": {"num_shared_experts": 1, "has_qk_norm": False},  # its norms have no weights
    "phi": {"attention_bias": True, "mlp_bias": True, "has_gated_mlp": False},
}  # fmt: skip
# Families whose attention_bias means q, k and v only; elsewhere the output projection has it too.
NO_OUTPUT_BIAS = ("qwen2", "qwen2_moe", "qwen2_5_vl_text", "glm4", "glm4_moe")
# Families whose every layer slides when sliding_window is set.
ALL_LAYERS_SLIDE = ("mistral", "mixtral", "phi3")
# vLLM leaves max_position_embeddings alone under these; any other kind multiplies it by its `factor`.
UNSCALED_ROPE_TYPES = ("su", "longrope", "llama3")
# Choices by layer that a ModelSpec cannot express, with the values that mean "every layer is alike".
UNIFORM_LAYERS = {"decoder_sparse_step": 1, "interleave_moe_layer_step": 1, "moe_layer_freq": 1}


def model_from_hf_config(config: Mapping[str, Any], name: str, source: str) -> ModelSpec:
    """Translate a Hugging Face config, with that family's defaults, into a ModelSpec.

    Of a vision-language model only the language model is counted: give `num_extra_parameters` for the tower.
    Layers for multi-token prediction are left out. Raises ScenarioError, one fault a line, if a dimension is
    missing or a feature is not modelled.
    """
    text = _text_config(config)
    family = str(text.get("model_type", ""))
    _check(text, source)
    heads = text["num_attention_heads"]
    attention_bias = text.get("attention_bias", text.get("qkv_bias", False))
    fields: dict[str, Any] = {
        **{key: text[key] for key in REQUIRED},
        "name": name,
        "source": source,
        "num_key_value_heads": text.get("num_key_value_heads", heads),
        "head_dim": text.get("head_dim", text["hidden_size"] // heads),
        "dtype": str(text.get("torch_dtype", text.get("dtype", "bfloat16"))).removeprefix("torch."),
        # Hugging Face's base class ties them, but the decoders here, Gemma apart, override that
        "tie_word_embeddings": text.get("tie_word_embeddings", False),
        "attention_bias": attention_bias,
        "attention_output_bias": attention_bias and family not in NO_OUTPUT_BIAS,
        "mlp_bias": text.get("mlp_bias", False),
        "has_qk_norm": text.get("has_qk_norm", text.get("use_qk_norm", False)),
        "has_gated_mlp": text.get("has_gated_mlp", True),
        "max_position_embeddings": _max_position_embeddings(text),
        "quantization": quantization_fields(text.get("quantization_config"), source),
    }
    fields |= _layer_types(text, family) | _experts(text) | _latent_attention(text) | _linear_attention(text)
    fields |= _rotary_tables(text) | _images(config)
    return validated_model(fields, source)


def validated_model(fields: Mapping[str, Any], source: str) -> ModelSpec:
    """Make a ModelSpec; what pydantic finds becomes a ScenarioError with `source` in front of each fault."""
    try:
        return ModelSpec.model_validate(dict(fields))
    except ValidationError as error:
        faults = []
        for fault in error.errors():
            place = ".".join(str(part) for part in fault["loc"])
            got = f", got {fault['input']!r}" if place and fault["type"] != "missing" else ""
            reason = fault["msg"].removeprefix("Value error, ")
            faults.append(": ".join(part for part in (source, place, reason) if part) + got)
        raise ScenarioError(faults) from None


def repeated(period: Sequence[str], num_layers: int) -> tuple[str, ...]:
    """Return a pattern of layers, repeated to the depth of the model.

    >>> repeated(["sliding_attention", "full_attention"], 3)
    ('sliding_attention', 'full_attention', 'sliding_attention')
    """
    return tuple(period[layer % len(period)] for layer in range(num_layers)) if period else ()


def _text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The language model's keys over its family's defaults; null counts as absent."""
    nests = [config[key] for key in ("text_config", "llm_config", "language_config") if key in config]
    text = dict(nests[0] if nests and isinstance(nests[0], dict) else config)
    for key in ("torch_dtype", "dtype", "tie_word_embeddings", "quantization_config"):
        if key in config:
            text.setdefault(key, config[key])
    text = {key: value for key, value in text.items() if value is not None}
    if "moe_intermediate_size" in text:  # where every layer has experts, some configs state no other
        text.setdefault("intermediate_size", text["moe_intermediate_size"])
    return FAMILY_DEFAULTS.get(str(text.get("model_type", "")), {}) | text


def _check(text: Mapping[str, Any], source: str) -> None:
    """Raise one ScenarioError for all dimensions that are absent and all layouts that are not modelled."""
    faults = []
    for key in REQUIRED:
        value = text.get(key, "nothing")
        if not isinstance(value, int) or value <= 0:
            faults.append(f"{source}: {key}: wanted a positive integer, got {value!r}")
    if _num_experts(text):
        for key, uniform in UNIFORM_LAYERS.items():
            if text.get(key, uniform) != uniform:
                faults.append(
                    f"{source}: {key}: wanted {uniform} (experts in every layer), got {text[key]!r}"
                )
        if text.get("mlp_only_layers"):
            faults.append(f"{source}: mlp_only_layers: wanted none, got {text['mlp_only_layers']!r}")
    if faults:
        raise ScenarioError(faults)


def _max_position_embeddings(text: Mapping[str, Any]) -> int:
    """The longest context as vLLM derives it: most kinds of rope scaling stretch it by their factor."""
    length: int = text["max_position_embeddings"]
    rope = text.get("rope_scaling") or text.get("rope_parameters") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    # Gemma 3 states the stretched length
    if rope_type in UNSCALED_ROPE_TYPES or str(text.get("model_type", "")).startswith("gemma3"):
        return length
    if rope_type == "yarn":
        length = rope.get("original_max_position_embeddings", length)
    return int(length * rope.get("factor", 1.0))


def _layer_types(text: Mapping[str, Any], family: str) -> dict[str, Any]:
    """Which layers attend to a window (in Llama 4, a chunk) and its length; nothing if all attend to all."""
    num_layers: int = text["num_hidden_layers"]
    window = text.get("sliding_window")
    types: Sequence[str] = ()
    if "attention_chunk_size" in text:
        window = text["attention_chunk_size"]
        types = repeated(["chunked_attention"] * 3 + ["full_attention"], num_layers)
        if text.get("no_rope_layers"):  # 1 = rope, and so chunked
            types = ["chunked_attention" if rope else "full_attention" for rope in text["no_rope_layers"]]
    elif "layer_types" in text:
        types = text["layer_types"]
    elif not window or window >= text["max_position_embeddings"] or not text.get("use_sliding_window", True):
        pass
    elif family in ALL_LAYERS_SLIDE:
        types = repeated(["sliding_attention"], num_layers)
    elif "sliding_window_pattern" in text:
        period = ["sliding_attention"] * (text["sliding_window_pattern"] - 1) + ["full_attention"]
        types = repeated(period, num_layers)
    elif "use_sliding_window" in text:  # Qwen: the layers from max_window_layers on slide
        full = min(text.get("max_window_layers", 0), num_layers)
        types = ["full_attention"] * full + ["sliding_attention"] * (num_layers - full)
    if set(types) <= {"full_attention"}:
        return {}
    return {"layer_types": tuple(types), "sliding_window": window}


def _num_experts(text: Mapping[str, Any]) -> Any:
    return text.get("num_experts", text.get("num_local_experts", text.get("n_routed_experts", 0)))


def _experts(text: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a mixture of experts, under any family's spelling."""
    if not _num_experts(text):
        return {}
    shared_size = text.get("shared_expert_intermediate_size") or None  # Qwen3-Coder says 0
    shared = text.get("n_shared_experts", text.get("num_shared_experts", 1 if shared_size else 0))
    return {
        "num_experts": _num_experts(text),
        "num_experts_per_tok": text.get("num_experts_per_tok", text.get("experts_per_token", 0)),
        "moe_intermediate_size": text.get("moe_intermediate_size"),
        "num_shared_experts": shared,
        "shared_expert_intermediate_size": shared_size,
        "first_k_dense_replace": text.get("first_k_dense_replace", 0),
    }


def _latent_attention(text: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of multi-head latent attention; its head_dim is the query's."""
    if "kv_lora_rank" not in text:
        return {}
    keys = ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    head_dim = text.get("qk_nope_head_dim", 0) + text.get("qk_rope_head_dim", 0)
    return {key: text.get(key) for key in keys} | {"head_dim": head_dim}


def _linear_attention(text: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of linear-attention layers, and of the gate that their families give the other layers."""
    keys = (
        "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
        "linear_conv_kernel_dim",
    )  # fmt: skip
    if keys[0] not in text:
        return {}
    # Qwen3-Next has the gate without saying so
    return {key: text.get(key) for key in keys} | {
        "has_attention_output_gate": text.get("attn_output_gate", True)
    }


def _rotary_tables(text: Mapping[str, Any]) -> dict[str, Any]:
    """The share of a head that turns, and the positions of vLLM's tables where they are not those of the model.

    Gemma 3 has a table for its full layers, as long as linear scaling stretches it, and one for the others.
    """
    rope = text.get("rope_scaling") or text.get("rope_parameters") or {}
    fields: dict[str, Any] = {}
    share = text.get("partial_rotary_factor", rope.get("partial_rotary_factor"))
    if share is not None:
        fields["partial_rotary_factor"] = float(share)
    if str(text.get("model_type", "")).startswith("gemma3") and "full_attention" not in rope:
        positions = text["max_position_embeddings"]
        fields["num_rotary_positions"] = int(positions * rope.get("factor", 1.0)) + positions
    return fields


def _images(config: Mapping[str, Any]) -> dict[str, Any]:
    """Pixels that become one token; Gemma 3 states the tokens of an image instead of what it merges."""
    vision = config.get("vision_config")
    if not isinstance(vision, dict) or not isinstance(vision.get("patch_size"), int):
        return {}
    if "mm_tokens_per_image" in config and vision.get("image_size"):
        return {"image_pixels_per_token": vision["image_size"] ** 2 // config["mm_tokens_per_image"]}
    merged = vision.get("spatial_merge_size", config.get("spatial_merge_size"))
    if merged is None:
        merged = (vision.get("merge_kernel_size") or [1])[0]
    return {"image_pixels_per_token": (vision["patch_size"] * merged) ** 2}
