"""``simkv list``: a line for everything that ships, and what it lists can be used by the name it lists."""

from __future__ import annotations

from simkv.load.catalog import describe_hardware, describe_models, describe_scenarios
from simkv.load.hardware import find_hardware, shipped_hardware
from simkv.load.model import find_model, shipped_models
from simkv.load.scenario import load_scenario, shipped_scenarios


def test_models_are_listed_by_the_name_that_finds_them() -> None:
    lines = list(describe_models())
    assert [line.split()[0] for line in lines] == list(shipped_models())
    for line in lines:
        model = find_model(line.split()[0])
        assert f"{model.num_hidden_layers} layers" in line
        assert f"{model.max_position_embeddings:,} positions" in line
        assert ("MoE" in line, "MLA" in line) == (model.is_moe, model.is_mla)
        if model.quantization is not None:
            assert line.endswith(f", {model.quantization.method}")


def test_one_model_in_full() -> None:
    [line] = [line for line in describe_models() if line.startswith("meta-llama/Llama-3.1-8B ")]
    assert " ".join(line.split()) == (
        "meta-llama/Llama-3.1-8B 8.0B 32 layers 8 KV heads 131,072 positions dense"
    )


def test_hardware_is_listed_by_the_name_that_finds_it() -> None:
    *lines, blank, note = describe_hardware()
    assert [line.split()[0] for line in lines] == shipped_hardware()
    for line in lines:
        name = line.split()[0]
        assert line.removeprefix(name).strip() == find_hardware(name).description
    assert blank == ""
    assert note.startswith("NAME_x8 is one node of 8 GPUs")


def test_scenarios_are_listed_with_their_question() -> None:
    lines = list(describe_scenarios())
    assert [line.split()[0] for line in lines] == list(shipped_scenarios())
    for line in lines:
        name, question = line.split(maxsplit=1)
        assert shipped_scenarios()[name].read_text(encoding="utf-8").startswith(f"# {question}\n")
        assert load_scenario(name).name == name


def test_no_line_says_more_than_a_wide_terminal_holds() -> None:
    lines = [*describe_models(), *describe_hardware(), *describe_scenarios()]
    assert all(len(line) <= 150 and line == line.rstrip() for line in lines)
