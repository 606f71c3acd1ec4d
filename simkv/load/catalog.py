"""What ships with simkv, a line each."""

from __future__ import annotations

from collections.abc import Iterator

from simkv.load.hardware import find_hardware, shipped_hardware
from simkv.load.model import shipped_models
from simkv.load.scenario import shipped_scenarios


def describe_models() -> Iterator[str]:
    """Yield id and dimensions of every shipped model."""
    for name, model in shipped_models().items():
        kind = "MoE" if model.is_moe else "dense"
        kind += ", MLA" if model.is_mla else ", hybrid attention" if model.is_hybrid else ""
        quantization = f", {model.quantization.method}" if model.quantization else ""
        yield (
            f"{name:<55} {model.num_parameters / 1e9:>6.1f}B  {model.num_hidden_layers:>3} layers  "
            f"{model.num_key_value_heads:>3} KV heads  {model.max_position_embeddings:>8,} positions  "
            f"{kind}{quantization}"
        )


def describe_hardware() -> Iterator[str]:
    """Yield name and description of every shipped profile."""
    for name in shipped_hardware():
        hardware = find_hardware(name)
        yield f"{name:<18} {hardware.description}"
    yield ""
    yield "NAME_x8 is one node of 8 GPUs, NAME_2x8 two nodes of 8; NAME takes what the layout needs in one node."


def describe_scenarios() -> Iterator[str]:
    """Yield name and question of every shipped scenario."""
    for name, path in shipped_scenarios().items():
        question = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        yield f"{name:<18} {question}"
