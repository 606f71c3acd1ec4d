"""Model dimensions from the shipped tables or from a Hugging Face ``config.json``.

The shipped tables are ``simkv/data/models/*.yaml``: one mapping of Hugging Face id to the fields of
:class:`~simkv.spec.model.ModelSpec`, and besides

- ``like: other/id``: start from that entry's fields;
- ``aliases: [ids]``: further models with these dimensions;
- ``layer_types`` shorter than the model: one period of a pattern, repeated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from simkv.errors import ScenarioError, did_you_mean
from simkv.load.hf_config import model_from_hf_config, repeated, validated_model
from simkv.spec.model import ModelSpec, QuantizationSpec

__all__ = ["find_model", "load_model_file", "model_from_hf_config", "shipped_models"]

MODEL_DIR = Path(__file__).resolve().parent.parent / "data" / "models"
# Quantised copies are published under the model's name and one of these: Red Hat's and Neural Magic's (linear
# layers but the head; per channel, 4 bits in groups of 128), and AWQ and GPTQ in their usual groups of 128.
QUANTIZED_SUFFIXES = {
    r"fp8(-dynamic)?": QuantizationSpec(method="fp8"),
    r"quantized\.w8a8": QuantizationSpec(method="w8a8"),
    r"quantized\.w4a16|w4a16|gptq-int4": QuantizationSpec(method="w4a16", group_size=128),
    r"awq(-int4)?": QuantizationSpec(method="w4a16", group_size=128, has_zero_points=True),
}
# Model card of meta-llama/Llama-3.1-405B-Instruct-FP8: only the MLPs of the inner layers are quantised.
_META_FP8 = re.compile(r"meta-llama/(?:meta-)?llama-3\.1-405b(?:-instruct)?-fp8", re.IGNORECASE)
YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where there is one, for its speed


def shipped_models() -> dict[str, ModelSpec]:
    """Return every shipped model by its Hugging Face id, aliases left out."""
    return dict(_shipped()[0])


def find_model(name: str) -> ModelSpec:
    """Return the shipped model called `name`: an id or an alias, in any case.

    ``-Instruct`` and the organisation may be left out, or ``-Instruct`` added, where that leaves one model. A
    suffix by which publishers name quantised copies (``-FP8-dynamic``, ``-quantized.w8a8``) may follow a shipped
    name. Raises ScenarioError if there is none, or more than one.

    >>> find_model("llama-3.1-8b").num_parameters
    8030261248
    """
    if _META_FP8.fullmatch(name):
        raise ScenarioError(
            f"model: {name!r} keeps attention and the outer layers in bfloat16, which simkv cannot express; "
            "nvidia/Llama-3.1-405B-Instruct-FP8 has all linear layers in FP8"
        )
    found = _find_shipped(name) or _find_quantised(name)
    if found is not None:
        return found
    _, ids = _shipped()
    hint = did_you_mean(name, ids) or did_you_mean(name, [known.split("/")[-1] for known in ids])
    raise ScenarioError(
        f"model: {name!r} is not shipped{hint} "
        "(give a path to a Hugging Face config.json, or dimensions inline; see 'simkv list models')"
    )


def _find_shipped(name: str) -> ModelSpec | None:
    models, ids = _shipped()
    for simplify in (_lower, _without_instruct, _without_organisation, _bare):
        matches = [known for known in ids if simplify(known) == simplify(name)]
        targets = sorted({ids[known] for known in matches})
        if len(targets) > 1:
            choice = ", ".join(repr(target) for target in targets)
            raise ScenarioError(f"model: {name!r} is ambiguous; wanted one of {choice}")
        if targets:
            model = models[targets[0]]
            return model if model.name in matches else model.replace(name=matches[0])
    return None


def _find_quantised(name: str) -> ModelSpec | None:
    """A shipped model in the quantisation that the rest of its name states; the publisher is another's."""
    for suffix, quantization in QUANTIZED_SUFFIXES.items():
        base = re.sub(rf"[-.](?:{suffix})$", "", _without_organisation(name), flags=re.IGNORECASE)
        if base != _without_organisation(name):
            model = _find_shipped(base)
            if model is not None and model.quantization is None:
                return model.replace(name=name, quantization=quantization)
    return None


def load_model_file(path: str | Path) -> ModelSpec:
    """Read a Hugging Face ``config.json``; the model takes the name of its folder.

    Raises ScenarioError if the file cannot be read, is not a JSON object or lacks a dimension.
    """
    path = Path(path)
    try:
        config = json.loads(path.read_bytes())
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ScenarioError(f"{path}: wanted a Hugging Face config.json, got no JSON: {error}") from None
    if not isinstance(config, dict):
        raise ScenarioError(f"{path}: wanted a JSON object, got {config!r:.40}")
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return model_from_hf_config(config, name, str(path))


@lru_cache(maxsize=1)
def _shipped() -> tuple[dict[str, ModelSpec], dict[str, str]]:
    """All shipped models by id, and the id behind every id and alias."""
    entries: dict[str, dict[str, Any]] = {}
    for path in sorted(MODEL_DIR.glob("*.yaml")):
        entries |= yaml.load(path.read_text(encoding="utf-8"), Loader=YAML_LOADER)
    models: dict[str, ModelSpec] = {}
    ids: dict[str, str] = {}
    for name, entry in entries.items():
        if "source" not in entry:
            raise ScenarioError(f"{name}: source: missing; wanted where the dimensions come from")
        fields = {"name": name} | _inherited(entries, name)
        fields["layer_types"] = repeated(fields.get("layer_types", ()), fields["num_hidden_layers"])
        models[name] = validated_model(fields, name)
        ids |= dict.fromkeys((name, *entry.get("aliases", ())), name)
    return models, ids


def _inherited(entries: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any]:
    """The ModelSpec fields of one entry over those of the entry it is like."""
    entry = entries[name]
    base = _inherited(entries, entry["like"]) if "like" in entry else {}
    return base | {key: value for key, value in entry.items() if key not in ("like", "aliases")}


def _lower(name: str) -> str:
    return name.strip().lower()


def _without_instruct(name: str) -> str:
    return _lower(name).replace("-instruct", "")


def _without_organisation(name: str) -> str:
    return _lower(name).rpartition("/")[2]


def _bare(name: str) -> str:
    return _without_instruct(_without_organisation(name))
