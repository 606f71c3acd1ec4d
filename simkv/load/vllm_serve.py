"""``vllm serve MODEL …``, ``python -m vllm.entrypoints.openai.api_server …``, ``docker run … vllm/vllm-openai``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from simkv.load.command_line import (
    NO_EFFECT,
    NOT_SIMULATED,
    Left,
    Reading,
    before_shell,
    beginning,
    environment,
    read_flags,
    split_words,
)
from simkv.load.faults import shown
from simkv.load.vllm_flags import serve_flags
from simkv.spec.engine import LATEST_VLLM, parse_version

_IMAGE = re.compile(r".*/(vllm-openai[\w.-]*)(?::([\w.-]+))?(?:@.*)?")
_MODULE = re.compile(r"vllm\.entrypoints\.(?:.*\.)?api_server")
_PARTITION = "VLLM_PP_LAYER_PARTITION"
_VARIABLES = {  # the first that a name begins with tells why it sets no field
    "CUDA_VISIBLE_DEVICES": "the GPUs are those of --hardware",
    "VLLM_API_KEY": NO_EFFECT,
    "VLLM_LOGGING": NO_EFFECT,
    "VLLM_CACHE": NO_EFFECT,
    "VLLM_WORKER_MULTIPROC_METHOD": NO_EFFECT,
    "VLLM_": NOT_SIMULATED,
    "NCCL_": NOT_SIMULATED,
    "": NO_EFFECT,
}


class _Program(NamedTuple):
    """Where a server's program stands among the words: its first, and the first after it; its image."""

    start: int
    end: int
    image: str | None
    tag: str | None


def read_serve(text: str) -> Reading:
    """Return the fields that a server's command line sets, what was left out, and its faults."""
    reading = Reading("--vllm")
    words = split_words(text, reading)
    program = _find_program(words)
    if program is None:
        if not reading.faults:
            reading.fault(_no_program(words))
        return reading
    if program.image is not None:
        _read_image(program.image, program.tag, reading)
    for name, value in environment(words[: program.start]):
        _read_variable(name, value, reading)
    models, given = read_flags(before_shell(words[program.end :]), serve_flags(), reading)
    for name, flag, value in given:
        if flag.path is None:
            reading.ignore(name, flag.why)
        elif isinstance(value, Left):
            reading.ignore(name, value.why)
            if value.resets:
                reading.set(flag.path, None, name)
        elif value is not None:
            reading.set(flag.path, value, name)
    if models:
        reading.set(("model",), models[0])
    if len(models) > 1:
        reading.fault(f"wanted one model, got {', '.join(map(shown, models))}")
    return reading


def _find_program(words: Sequence[str]) -> _Program | None:
    image, tag, start, end = None, None, None, 0
    for index, word in enumerate(words):
        base = word.rpartition("/")[2]
        begin = index if start is None else start
        if base == "vllm" and words[index + 1 : index + 2] == ["serve"]:
            return _Program(begin, index + 2, image, tag)
        if base == "api_server.py" or _MODULE.fullmatch(word):
            return _Program(begin, index + 1, image, tag)
        if start is None and (match := _IMAGE.fullmatch(word)):
            (image, tag), start, end = match.groups(), index, index + 1
    return None if start is None else _Program(start, end, image, tag)


def _no_program(words: Sequence[str]) -> str:
    if "bench" in words or any(word.endswith("benchmark_serving.py") for word in words):
        return "wanted the server's command line; that of the clients belongs to --bench"
    return (
        "wanted a command such as 'vllm serve MODEL …' or "
        f"'python -m vllm.entrypoints.openai.api_server --model MODEL …', got {beginning(words)}"
    )


def _read_image(image: str, tag: str | None, reading: Reading) -> None:
    """Take the version of vLLM from an image's tag."""
    try:
        parse_version(tag or "")
    except ValueError:
        why = f"vLLM {LATEST_VLLM} is taken; --set engine.vllm_version=X.Y.Z takes another"
        reading.ignore(f"{image}:{tag}" if tag else image, why)
        return
    reading.set(("engine", "vllm_version"), str(tag).removeprefix("v"), f"{image}:{tag}")


def _read_variable(name: str, value: str, reading: Reading) -> None:
    if name == _PARTITION:
        try:
            layers = [int(number) for number in value.split(",")]
            reading.set(("parallel", "pipeline_layer_partition"), layers, name)
        except ValueError:
            reading.fault(f"{name}: wanted layers by stage, such as 16,16, got {shown(value)}")
    elif (name, value) == ("VLLM_USE_V1", "1"):
        reading.ignore(name, NO_EFFECT)
    else:
        reading.ignore(name, next(why for prefix, why in _VARIABLES.items() if name.startswith(prefix)))
