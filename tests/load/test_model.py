from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from simkv.errors import ScenarioError
from simkv.load.model import MODEL_DIR, find_model, load_model_file, model_from_hf_config, shipped_models
from simkv.spec.model import ModelSpec

# Totals as the Hugging Face pages state them, or the makers' announcements where rounded.
PUBLISHED_PARAMETERS = {
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-2-13b-hf": 13_015_864_320,
    "meta-llama/Llama-2-70b-hf": 68_976_648_192,
    "codellama/CodeLlama-7b-hf": 6_738_546_688,
    "codellama/CodeLlama-13b-hf": 13_016_028_160,
    "codellama/CodeLlama-34b-hf": 33_743_970_304,
    "codellama/CodeLlama-70b-hf": 68_976_910_336,
    "meta-llama/Meta-Llama-3-8B": 8_030_261_248,
    "meta-llama/Meta-Llama-3-70B": 70_553_706_496,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
    "meta-llama/Llama-3.1-405B": 405_853_388_800,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
    "meta-llama/Llama-3.3-70B-Instruct": 70_553_706_496,
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": 108_641_793_536,
    "Qwen/Qwen1.5-4B": 3_950_369_280,
    "Qwen/Qwen1.5-7B": 7_721_324_544,
    "Qwen/Qwen1.5-14B": 14_167_290_880,
    "Qwen/Qwen1.5-32B": 32_512_218_112,
    "Qwen/Qwen1.5-72B": 72_287_920_128,
    "Qwen/Qwen1.5-MoE-A2.7B": 14_315_784_192,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-1.5B": 1_543_714_304,
    "Qwen/Qwen2.5-3B": 3_085_938_688,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen2.5-14B": 14_770_033_664,
    "Qwen/Qwen2.5-32B": 32_763_876_352,
    "Qwen/Qwen2.5-72B": 72_706_203_648,
    "Qwen/QwQ-32B": 32_763_876_352,
    "Qwen/Qwen2-VL-2B-Instruct": 2_208_985_600,
    "Qwen/Qwen2-VL-7B-Instruct": 8_291_375_616,
    "Qwen/Qwen2-VL-72B-Instruct": 73_405_560_320,
    "Qwen/Qwen2.5-VL-3B-Instruct": 3_754_622_976,
    "Qwen/Qwen2.5-VL-7B-Instruct": 8_292_166_656,
    "Qwen/Qwen2.5-VL-32B-Instruct": 33_452_718_336,
    "Qwen/Qwen2.5-VL-72B-Instruct": 73_410_777_344,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-1.7B": 1_720_574_976,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-14B": 14_768_307_200,
    "Qwen/Qwen3-32B": 32_762_123_264,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "Qwen/Qwen3-VL-2B-Instruct": 2_127_532_032,
    "Qwen/Qwen3-VL-4B-Instruct": 4_437_815_808,
    "Qwen/Qwen3-VL-8B-Instruct": 8_767_123_696,
    "Qwen/Qwen3-VL-32B-Instruct": 33_357_390_064,
    "Qwen/Qwen3-VL-30B-A3B-Instruct": 31_070_754_032,
    "Qwen/Qwen3-235B-A22B": 235_093_634_560,
    "Qwen/Qwen3-VL-235B-A22B-Instruct": 235_670_022_896,
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": 480_000_000_000,
    "mistralai/Mistral-7B-v0.1": 7_241_732_096,
    "mistralai/Mistral-7B-v0.3": 7_248_023_552,
    "mistralai/Mistral-Nemo-Instruct-2407": 12_247_782_400,
    "mistralai/Mistral-Small-24B-Instruct-2501": 23_572_403_200,
    "mistralai/Mistral-Small-3.1-24B-Instruct-2503": 24_011_361_280,
    "mistralai/Devstral-Small-2505": 23_572_403_200,
    "mistralai/Mistral-Large-Instruct-2411": 122_610_069_504,
    "mistralai/Ministral-8B-Instruct-2410": 8_019_808_256,
    "mistralai/Codestral-22B-v0.1": 22_247_282_688,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "google/gemma-2-2b": 2_614_341_888,
    "google/gemma-2-9b": 9_241_705_984,
    "google/gemma-2-27b": 27_227_128_320,
    "google/gemma-3-12b-it": 12_187_325_040,
    "google/gemma-3-27b-it": 27_432_406_640,
    "deepseek-ai/deepseek-coder-33b-instruct": 33_342_991_360,
    "deepseek-ai/deepseek-coder-6.7b-instruct": 6_740_512_768,
    "deepseek-ai/deepseek-llm-7b-chat": 6_910_365_696,
    "deepseek-ai/deepseek-llm-67b-chat": 67_425_001_472,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": 1_777_088_000,
    "deepseek-ai/DeepSeek-V2-Lite": 15_706_484_224,
    "deepseek-ai/DeepSeek-V2": 235_741_434_880,
    "deepseek-ai/DeepSeek-V3": 671_000_000_000,
    "deepseek-ai/DeepSeek-R1": 671_000_000_000,
    "moonshotai/Kimi-VL-A3B-Instruct": 16_407_657_776,
    "moonshotai/Moonlight-16B-A3B-Instruct": 15_960_111_936,
    "llava-hf/llava-1.5-7b-hf": 7_063_427_072,
    "openai/gpt-oss-20b": 20_914_757_184,
    "openai/gpt-oss-120b": 116_829_156_672,
    "microsoft/phi-2": 2_779_683_840,
    "microsoft/phi-4": 14_659_507_200,
    "microsoft/Phi-3-mini-4k-instruct": 3_821_079_552,
    "microsoft/Phi-3-medium-128k-instruct": 13_960_238_080,
    "microsoft/Phi-3.5-MoE-instruct": 41_873_153_344,
    "01-ai/Yi-34B": 34_388_917_248,
    "01-ai/Yi-6B": 6_061_035_520,
    "01-ai/Yi-9B": 8_829_407_232,
    "zai-org/GLM-4.7": 352_797_829_024,
    "zai-org/GLM-4.5-Air": 106_852_251_264,  # without the layer for multi-token prediction
    "zai-org/glm-4-9b-chat": 9_399_951_360,
    "ibm-granite/granite-3.1-2b-instruct": 2_530_000_000,
    "ibm-granite/granite-3.1-8b-instruct": 8_170_000_000,
    "ibm-granite/granite-3.0-2b-instruct": 2_530_000_000,
    "ibm-granite/granite-3.0-8b-instruct": 8_170_000_000,
    "ibm-granite/granite-vision-3.3-2b": 2_980_000_000,
    "HuggingFaceTB/SmolLM2-135M": 134_515_008,
    "HuggingFaceTB/SmolLM2-360M": 361_821_120,
    "HuggingFaceTB/SmolLM3-3B": 3_075_098_624,
    "upstage/SOLAR-10.7B-v1.0": 10_731_524_096,
    "ByteDance-Seed/Seed-OSS-36B-Instruct": 36_151_104_512,
    "CohereLabs/c4ai-command-r-v01": 34_980_831_232,
    "CohereLabs/c4ai-command-r-08-2024": 32_296_476_672,
    "CohereLabs/c4ai-command-r-plus": 103_810_674_688,
    "allenai/OLMo-2-1124-7B-Instruct": 7_298_617_344,
    "allenai/OLMo-2-1124-13B-Instruct": 13_716_198_400,
    "facebook/opt-125m": 125_239_296,
    "facebook/opt-1.3b": 1_315_758_080,
    "facebook/opt-6.7b": 6_658_473_984,
    "facebook/opt-13b": 12_853_473_280,
}

# A small llama in Hugging Face's words; the other configs below are changes to it.
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


def from_hf(**changes: Any) -> ModelSpec:
    config = {key: value for key, value in (LLAMA | changes).items() if value != "absent"}
    return model_from_hf_config(config, "tiny", "tiny/config.json")


LINEAR_ATTENTION = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}

# Laws


def test_every_shipped_model_loads_and_has_a_source() -> None:
    for name, model in shipped_models().items():
        assert model.name == name
        assert len(model.source) > 20
        assert model.source != "given"


def test_every_shipped_id_and_alias_is_found_and_belongs_to_one_model() -> None:
    seen: dict[str, str] = {}
    for path in MODEL_DIR.glob("*.yaml"):
        for name, entry in yaml.safe_load(path.read_text()).items():
            for known in (name, *entry.get("aliases", ())):
                assert known.lower() not in seen, f"{known} is shipped twice"
                seen[known.lower()] = name
                assert find_model(known).name == known
                assert find_model(known.upper()).replace(name=name) == shipped_models()[name]


@pytest.mark.parametrize("name", PUBLISHED_PARAMETERS)
def test_parameter_counts_are_the_published_ones(name: str) -> None:
    assert shipped_models()[name].num_parameters == pytest.approx(PUBLISHED_PARAMETERS[name], rel=0.005)


@pytest.mark.parametrize("name", sorted(shipped_models()))
def test_quantising_changes_no_dimension(name: str) -> None:
    model = shipped_models()[name]
    if model.quantization is not None:
        stored = model.quantization.bytes_per_weight * model.num_parameters
        assert stored < 0.6 * model.num_parameters * model.dtype_bytes


@given(
    layers=st.integers(1, 40),
    kv_heads=st.sampled_from([1, 2, 4, 8]),
    experts=st.sampled_from([0, 4, 60]),
    tied=st.booleans(),
)
def test_what_a_config_states_is_what_the_spec_says(
    layers: int, kv_heads: int, experts: int, tied: bool
) -> None:
    model = from_hf(
        num_hidden_layers=layers,
        num_key_value_heads=kv_heads,
        num_local_experts=experts,
        num_experts_per_tok=2,
        tie_word_embeddings=tied,
    )
    assert model.num_hidden_layers == layers
    assert model.kv_elements_per_token_per_layer() == 2 * kv_heads * 8
    assert model.is_moe == (experts > 0)
    assert model.tie_word_embeddings == tied
    untied = model.replace(tie_word_embeddings=False)
    assert untied.num_parameters - model.num_parameters == (1000 * 64 if tied else 0)


@given(garbage=st.dictionaries(st.sampled_from(sorted(LLAMA)), st.none() | st.text() | st.integers(-1, 9)))
def test_a_bad_value_is_an_input_error_never_a_traceback(garbage: dict[str, Any]) -> None:
    faults: tuple[str, ...] = ()
    try:
        model_from_hf_config(LLAMA | garbage, "tiny", "tiny/config.json")
    except ScenarioError as error:
        faults = error.faults
    assert all(fault.startswith("tiny/config.json: ") for fault in faults)


# KV bytes


def test_kv_bytes_of_a_whole_context_without_grouped_heads() -> None:
    assert find_model("Llama-2-7b-hf").kv_bytes(131_072) == 68_719_476_736


def test_kv_bytes_with_grouped_heads() -> None:
    assert find_model("meta-llama/Llama-3.1-70B").kv_bytes(4096) == 1_342_177_280


def test_a_latent_cache_holds_576_values_a_layer_on_every_rank() -> None:
    model = find_model("deepseek-ai/DeepSeek-V3")
    assert model.kv_elements_per_token_per_layer() == model.kv_elements_per_token_per_layer(8) == 576
    assert model.kv_bytes(1) == 576 * 61 * 2


# Shipped tables


@pytest.mark.parametrize(
    ("name", "head_dim"),
    [("Qwen3-32B", 128), ("gemma-2-9b", 256), ("gemma-3-27b-it", 128), ("Mistral-Nemo-Instruct-2407", 128)],
)
def test_head_dim_is_not_always_hidden_size_over_heads(name: str, head_dim: int) -> None:
    model = find_model(name)
    assert model.head_dim == head_dim != model.hidden_size // model.num_attention_heads


def test_patterns_of_layers_are_repeated_to_the_depth() -> None:
    assert find_model("gemma-3-27b-it").layer_types.count("full_attention") == 10
    assert find_model("Llama-4-Scout-17B-16E").layer_types.count("chunked_attention") == 36
    assert find_model("gpt-oss-20b").layer_types[:3] == (
        "sliding_attention",
        "full_attention",
        "sliding_attention",
    )
    assert not find_model("Mistral-7B-v0.1").is_hybrid


def test_quantised_forms() -> None:
    awq = find_model("Qwen/Qwen2.5-7B-Instruct-AWQ").quantization
    assert awq is not None
    assert awq.bytes_per_weight == 0.5 + 2 / 128 + 0.5 / 128  # a scale and a zero point
    fp8 = find_model("nvidia/Llama-3.3-70B-Instruct-FP8")
    assert fp8.quantization is not None
    assert fp8.quantization.bytes_per_weight == 1.0
    assert fp8.num_parameters == find_model("Llama-3.3-70B").num_parameters


@pytest.mark.parametrize(
    ("name", "method", "base"),
    [
        ("RedHatAI/Qwen2.5-7B-Instruct-quantized.w4a16", "w4a16", "Qwen/Qwen2.5-7B-Instruct"),
        ("redhatai/Qwen3-30B-A3B-FP8-dynamic", "fp8", "Qwen/Qwen3-30B-A3B"),
        ("casperhansen/llama-3-8b-instruct-awq", "w4a16", "meta-llama/Meta-Llama-3-8B"),
        ("Qwen/Qwen2.5-Coder-32B-Instruct-GPTQ-Int4", "w4a16", "Qwen/Qwen2.5-32B-Instruct"),
        ("Qwen/QwQ-32B-AWQ", "w4a16", "Qwen/QwQ-32B"),
        ("zai-org/GLM-4.5-FP8", "fp8", "zai-org/GLM-4.5"),
    ],
)
def test_names_of_quantised_copies_say_how(name: str, method: str, base: str) -> None:
    model = find_model(name)
    assert model.name == name
    assert model.quantization is not None
    assert model.quantization.method == method
    assert model.replace(name=base, quantization=None) == shipped_models()[base]


# Names


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("meta-llama/llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("Meta-Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B"),
        ("meta-llama/Llama-3.3-70B", "meta-llama/Llama-3.3-70B-Instruct"),
        ("qwen3-8b-instruct", "Qwen/Qwen3-8B"),
        ("Qwen2.5-72B", "Qwen/Qwen2.5-72B"),
        ("Llama-3.1-405B-FP8", "nvidia/Llama-3.1-405B-Instruct-FP8"),
    ],
)
def test_names_may_be_short(name: str, found: str) -> None:
    assert find_model(name).name == found


def test_an_unknown_name_is_an_error_that_suggests() -> None:
    with pytest.raises(ScenarioError) as caught:
        find_model("meta-llama/Lama-3.1-8B")
    assert str(caught.value) == (
        "model: 'meta-llama/Lama-3.1-8B' is not shipped; did you mean 'meta-llama/Llama-3.1-8B'? "
        "(give a path to a Hugging Face config.json, or dimensions inline; see 'simkv list models')"
    )


@pytest.mark.parametrize(
    "name", ["meta-llama/Llama-3.1-405B-Instruct-FP8", "meta-llama/Meta-Llama-3.1-405B-FP8"]
)
def test_another_publishers_quantisation_is_not_taken_for_metas(name: str) -> None:
    with pytest.raises(
        ScenarioError, match=r"keeps attention and the outer layers in bfloat16.*; nvidia/Llama"
    ):
        find_model(name)


def test_a_name_without_organisation_gets_a_suggestion_too() -> None:
    with pytest.raises(ScenarioError, match="did you mean 'openai/gpt-oss-120b'"):
        find_model("gptoss-120b")


# Hugging Face configs


def test_a_plain_llama() -> None:
    assert from_hf() == ModelSpec(
        name="tiny",
        source="tiny/config.json",
        num_hidden_layers=4,
        hidden_size=64,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=96,
        vocab_size=1000,
        max_position_embeddings=4096,
    )


def test_defaults_when_a_config_is_silent() -> None:
    model = from_hf(num_key_value_heads=None, head_dim=None, torch_dtype="absent")
    assert model.num_key_value_heads == 8
    assert model.head_dim == 8
    assert model.dtype == "bfloat16"
    assert from_hf(torch_dtype="absent", dtype="torch.float16").dtype == "float16"


@pytest.mark.parametrize(
    ("family", "field", "value"),
    [
        ("llama", "tie_word_embeddings", False),
        ("gemma2", "tie_word_embeddings", True),
        ("qwen2", "attention_bias", True),
        ("qwen2", "attention_output_bias", False),
        ("qwen3", "attention_bias", False),
        ("qwen3", "has_qk_norm", True),
        ("phi", "has_gated_mlp", False),
        ("phi", "attention_output_bias", True),
        ("gpt_oss", "mlp_bias", True),
        ("gemma2", "head_dim", 256),
    ],
)
def test_what_a_family_implies(family: str, field: str, value: object) -> None:
    assert getattr(from_hf(model_type=family), field) == value


def test_every_missing_dimension_is_named_in_one_error() -> None:
    with pytest.raises(ScenarioError) as caught:
        model_from_hf_config({"model_type": "llama", "hidden_size": 64}, "tiny", "c.json")
    missing = ("num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    for key in (*missing, "max_position_embeddings"):
        assert f"c.json: {key}: wanted a positive integer, got 'nothing'" in caught.value.faults


@pytest.mark.parametrize(
    ("rope_scaling", "expected"),
    [
        (None, 4096),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 512}, 4096),
        ({"type": "longrope", "factor": 32.0}, 4096),
        ({"type": "linear", "factor": 2.0}, 8192),
        ({"rope_type": "dynamic", "factor": 4.0}, 16384),
        ({"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}, 163840),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131072),
        ({"rope_type": "default"}, 4096),
    ],
)
def test_the_longest_context_follows_rope_scaling(rope_scaling: Any, expected: int) -> None:
    assert from_hf(rope_scaling=rope_scaling).max_position_embeddings == expected


def test_a_nested_language_model_takes_shared_keys_from_the_top() -> None:
    text = {key: value for key, value in LLAMA.items() if key != "torch_dtype"}
    config = {"model_type": "llava", "torch_dtype": "float16", "text_config": text, "vision_config": {}}
    assert model_from_hf_config(config, "tiny", "tiny/config.json") == from_hf(torch_dtype="float16")


def test_gemma_3_states_little() -> None:
    text = {"model_type": "gemma3_text", "num_hidden_layers": 7, "hidden_size": 64, "intermediate_size": 96}
    config = {"text_config": text | {"sliding_window": 1024, "rope_scaling": {"factor": 8.0}}}
    model = model_from_hf_config(config, "tiny", "tiny/config.json")
    assert model.layer_types == ("sliding_attention",) * 5 + ("full_attention", "sliding_attention")
    assert (model.vocab_size, model.max_position_embeddings, model.head_dim) == (262_208, 131_072, 256)
    assert (model.sliding_window, model.has_qk_norm, model.tie_word_embeddings) == (1024, True, True)


@pytest.mark.parametrize(
    ("changes", "layer_types"),
    [
        ({"model_type": "mistral", "sliding_window": 1024}, ("sliding_attention",) * 4),
        ({"model_type": "mistral", "sliding_window": None}, ()),
        ({"model_type": "phi3", "sliding_window": 262_144}, ()),
        ({"model_type": "qwen2", "sliding_window": 1024, "use_sliding_window": False}, ()),
        (
            {
                "model_type": "qwen2",
                "sliding_window": 1024,
                "use_sliding_window": True,
                "max_window_layers": 3,
            },
            ("full_attention",) * 3 + ("sliding_attention",),
        ),
        (
            {"model_type": "gemma2", "sliding_window": 1024},
            ("sliding_attention", "full_attention") * 2,
        ),
        (
            {"model_type": "llama4_text", "attention_chunk_size": 1024},
            ("chunked_attention",) * 3 + ("full_attention",),
        ),
        ({"layer_types": ["full_attention"] * 4, "sliding_window": 1024}, ()),
        (
            {"layer_types": ["linear_attention", "full_attention"] * 2} | LINEAR_ATTENTION,
            ("linear_attention", "full_attention") * 2,
        ),
    ],
)
def test_which_layers_slide(changes: dict[str, Any], layer_types: tuple[str, ...]) -> None:
    model = from_hf(**changes)
    assert model.layer_types == layer_types
    windowed = {"sliding_attention", "chunked_attention"} & set(layer_types)
    assert model.sliding_window == (1024 if windowed else None)


def test_experts_under_every_spelling() -> None:
    spellings = ("num_experts", "num_local_experts", "n_routed_experts")
    models = [from_hf(num_experts_per_tok=2, **{spelling: 8}) for spelling in spellings]
    assert models[0] == models[1] == models[2]
    assert models[0].num_experts == 8


def test_latent_attention() -> None:
    model = from_hf(
        model_type="deepseek_v3",
        num_key_value_heads=8,
        kv_lora_rank=32,
        q_lora_rank=None,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=16,
        n_routed_experts=4,
        n_shared_experts=1,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        first_k_dense_replace=1,
    )
    assert model.is_mla
    assert model.head_dim == 24
    assert model.kv_elements_per_token_per_layer() == 40
    assert model.num_mlp_parameters(0) == 3 * 64 * 96
    assert model.num_mlp_parameters(1) == 5 * 3 * 64 * 32 + 4 * 64


def compressed(kind: str, bits: int, activations: object, **weights: object) -> dict[str, Any]:
    group = {"weights": {"type": kind, "num_bits": bits, **weights}, "input_activations": activations}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


@pytest.mark.parametrize(
    ("config", "method", "group_size"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 16_384),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8", None),
        ({"quant_method": "fbgemm_fp8"}, "fp8", None),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8", None),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 16),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "w4a16", 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "w4a16", None),
        ({"quant_method": "mxfp4"}, "mxfp4", 32),
        (compressed("float", 8, {"dynamic": True}), "fp8", None),
        (compressed("float", 8, {"dynamic": True}, block_structure=[128, 128]), "fp8", 16_384),
        (compressed("int", 8, {"dynamic": True}), "w8a8", None),
        (compressed("int", 4, None, group_size=128), "w4a16", 128),
        (compressed("float", 4, {"dynamic": True}, group_size=16), "nvfp4", 16),
    ],
)
def test_quantisation(config: dict[str, Any], method: str, group_size: int | None) -> None:
    quantization = from_hf(quantization_config=config).quantization
    assert quantization is not None
    assert (quantization.method, quantization.group_size) == (method, group_size)


@pytest.mark.parametrize(
    "config",
    [{"quant_method": "bitsandbytes"}, {"quant_method": "gptq", "bits": 8}, compressed("int", 8, None)],
)
def test_quantisation_that_is_not_modelled_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError, match=r"tiny/config\.json: quantization_config: wanted fp8"):
        from_hf(quantization_config=config)


def test_layers_that_differ_in_their_experts_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"decoder_sparse_step: wanted 1 .* got 2"):
        from_hf(num_experts=8, num_experts_per_tok=2, decoder_sparse_step=2)
    with pytest.raises(ScenarioError, match="mlp_only_layers: wanted none"):
        from_hf(num_experts=8, num_experts_per_tok=2, mlp_only_layers=[0])


def test_faults_of_a_spec_come_with_their_source() -> None:
    with pytest.raises(ScenarioError) as caught:
        from_hf(num_key_value_heads=3)
    assert (
        str(caught.value) == "tiny/config.json: num_key_value_heads: 3 does not divide num_attention_heads 8"
    )
    with pytest.raises(ScenarioError, match=r"tiny/config.json: dtype: Input should be .* got 'float64'"):
        from_hf(torch_dtype="float64")


# Files


def test_a_config_file_gives_the_model_its_folders_name(tmp_path: Path) -> None:
    path = tmp_path / "my-model" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(LLAMA))
    assert load_model_file(path) == from_hf().replace(name="my-model", source=str(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"{", "wanted a Hugging Face config.json, got no JSON"),
        (b"\xff\xfe\x00", "wanted a Hugging Face config.json, got no JSON"),
        (b"[1, 2]", "wanted a JSON object, got [1, 2]"),
        (b"{}", "vocab_size: wanted a positive integer"),
    ],
)
def test_a_bad_file_is_an_error_with_its_path(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ScenarioError) as caught:
        load_model_file(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


# What the ledger needs of a config


def test_gemma_3_has_two_rotary_tables_one_of_them_stretched() -> None:
    rope = {"rope_type": "linear", "factor": 8.0}
    gemma = from_hf(model_type="gemma3_text", rope_scaling=rope, max_position_embeddings=4096)
    assert gemma.num_rotary_positions == 9 * 4096
    assert gemma.rotary_table_elements == 9 * 4096 * gemma.head_dim


def test_a_head_may_turn_in_part() -> None:
    assert from_hf(partial_rotary_factor=0.5).rotary_table_elements == 4096 * 4
    assert from_hf(rope_parameters={"partial_rotary_factor": 0.25}).rotary_table_elements == 4096 * 2
    assert from_hf().rotary_table_elements == 4096 * 8


@pytest.mark.parametrize(
    ("config", "pixels"),
    [
        ({"mm_tokens_per_image": 256, "vision_config": {"patch_size": 14, "image_size": 896}}, 3136),
        ({"vision_config": {"patch_size": 14, "spatial_merge_size": 2}}, 784),
        ({"spatial_merge_size": 2, "vision_config": {"patch_size": 14}}, 784),
        ({"vision_config": {"patch_size": 14, "merge_kernel_size": [2, 2]}}, 784),
        ({"vision_config": {"hidden_size": 64}}, 0),
    ],
)
def test_pixels_that_become_one_token(config: dict[str, object], pixels: int) -> None:
    assert from_hf(**config).image_pixels_per_token == pixels


@pytest.mark.parametrize(
    ("ignored", "scope"),
    [
        ({"ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"]}, "experts"),
        ({"modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}, "experts"),
        ({"exclude_modules": [f"model.layers.{i}.self_attn.q_proj" for i in range(16)]}, "experts"),
        ({"ignore": ["lm_head", "re:.*mlp.gate$"]}, "linear"),
        ({"ignore": ["model.layers.0.self_attn.o_proj"]}, "linear"),
    ],
)
def test_experts_alone_are_quantised_where_attention_is_not(ignored: dict[str, object], scope: str) -> None:
    quantization = from_hf(quantization_config={"quant_method": "fp8", **ignored}).quantization
    assert quantization is not None
    assert quantization.scope == scope


def test_linear_attention_layers_have_a_state_and_the_others_a_gate() -> None:
    model = from_hf(layer_types=["linear_attention", "full_attention"] * 2, **LINEAR_ATTENTION)
    assert model.has_attention_output_gate
    assert model.linear_conv_dim == 2 * 2 * 8 + 4 * 8
    with pytest.raises(ScenarioError, match="linear_attention needs linear_num_key_heads"):
        from_hf(layer_types=["linear_attention", "full_attention"] * 2)


def test_a_model_of_experts_alone_needs_no_other_width() -> None:
    model = from_hf(intermediate_size=None, moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2)
    assert model.intermediate_size == 32
