"""``vllm bench serve …`` and its forerunner ``benchmark_serving.py``: a workload, limits and a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from simkv.load.command_line import (
    NO_EFFECT,
    NOT_SIMULATED,
    Flag,
    Given,
    Reading,
    WrongValueError,
    before_shell,
    beginning,
    decimal_number,
    environment,
    read_flags,
    spelt,
    split_words,
    whole_number,
)
from simkv.load.faults import shown

_SCRIPT = "benchmark_serving.py"
_LIMITS = ("ttft", "tpot", "e2el")


class _Program(NamedTuple):
    """Where a benchmark's program stands among the words: its first, and the first after it."""

    start: int
    end: int
    default_dataset: str


def _rate(text: str) -> float | None:
    rate = decimal_number(text)
    return None if rate == math.inf else rate  # all at once


def _limits(texts: list[str]) -> dict[str, float]:
    """``ttft:3000 tpot:50`` as the fields of `slo`."""
    limits = {}
    for text in texts:
        name, colon, limit_ms = text.partition(":")
        if name not in _LIMITS or not colon:
            raise WrongValueError(f"{', '.join(_LIMITS)} with milliseconds, such as ttft:3000 tpot:50")
        limits[f"{name}_ms"] = decimal_number(limit_ms)
    if not limits:
        raise WrongValueError("limits such as ttft:3000 tpot:50")
    return limits


def _flags() -> dict[str, Flag]:
    def field(name: str, parse: Any, wanted: str = "a number") -> Flag:
        return Flag("one", ("workload", name), parse, wanted)

    flags = {f"--{name.replace('_', '-')}": field(name, parse) for name, parse in _FIELDS}
    flags |= {
        "--dataset-name": field("dataset_name", str, "a name"),
        "--input-len": field("random_input_len", whole_number),
        "--output-len": field("random_output_len", whole_number),
        "--seed": Flag("one", ("seed",), whole_number, "a number"),
        "--goodput": Flag("many", ("slo",), _limits),
        "--ignore-eos": Flag("switch", why="outputs always run to their length"),
    }
    for why, takes, names in _OTHERS:
        flags |= {f"--{name}": Flag(takes, None, lambda value: value, why=why) for name in names.split()}
    return flags


_FIELDS = (
    ("num_prompts", whole_number),
    ("max_concurrency", whole_number),
    ("request_rate", _rate),
    ("burstiness", decimal_number),
    ("random_input_len", whole_number),
    ("random_output_len", whole_number),
    ("random_prefix_len", whole_number),
    ("random_range_ratio", decimal_number),
)
_REFUSED = {
    "--ramp-up-strategy": "use --request-rate, and a run for each rate",
    "--use-beam-search": "leave it out",
    "--best-of": "leave it out",
}
_OTHERS = (
    (
        NO_EFFECT, "one",
        """backend endpoint-type base-url host port endpoint model served-model-name tokenizer tokenizer-mode
        label result-dir result-filename percentile-metrics metric-percentiles request-id-prefix top-p top-k
        min-p temperature frequency-penalty presence-penalty repetition-penalty logprobs
        ready-check-timeout-sec timeline-itl-thresholds chat-template-kwargs hf-subset hf-split hf-name
        hf-output-len custom-output-len sharegpt-output-len sonnet-input-len sonnet-output-len
        sonnet-prefix-len spec-bench-output-len spec-bench-category random-batch-size""",
    ),
    (NO_EFFECT, "many", "metadata header"),
    (
        NO_EFFECT, "switch",
        """trust-remote-code disable-tqdm profile save-result save-detailed append-result insecure
        plot-timeline plot-dataset-stats skip-tokenizer-init no-stream no-oversample skip-chat-template
        disable-shuffle""",
    ),
    (
        NOT_SIMULATED, "one",
        "num-warmups probe-request-rate extra-body lora-assignment ramp-up-start-rps ramp-up-end-rps",
    ),
    (NOT_SIMULATED, "many", "lora-modules"),
    ("", "one", "dataset-path dataset ramp-up-strategy best-of"),
    ("", "switch", "use-beam-search"),
)  # fmt: skip


def read_bench(text: str) -> Reading:
    """Return the fields that the clients' command line sets, what was left out, and its faults.

    The workload is one value: a benchmark is all that the clients do, whatever a file said of them.
    """
    reading = Reading("--bench")
    words = split_words(text, reading)
    program = _find_program(words, reading)
    if program is None:
        return reading
    for name, _ in environment(words[: program.start]):
        reading.ignore(name, NO_EFFECT)
    alone, given = read_flags(before_shell(words[program.end :]), _flags(), reading)
    for word in alone:
        reading.fault(f"wanted a flag, got {shown(word)}")

    workload: dict[str, Any] = {"dataset_name": program.default_dataset}
    reading.set(("workload",), workload)
    for name, flag, value in _general_lengths_last(given):
        if flag.path is None:
            _leave_out(name, flag, reading)
        elif flag.path[0] != "workload":
            reading.set(flag.path, value, name)
        else:
            reading.said_by[flag.path] = f"{reading.source}: {name}"
            workload[flag.path[1]] = value
    if workload.get("request_rate") is None:
        workload.pop("request_rate", None)
        if workload.pop("burstiness", 1.0) != 1.0:
            reading.ignore("--burstiness", "all requests come at once")
    _check_dataset(workload["dataset_name"], given, reading)
    return reading


def _find_program(words: Sequence[str], reading: Reading) -> _Program | None:
    for index, word in enumerate(words):
        base = word.rpartition("/")[2]
        if base == _SCRIPT:
            return _Program(index, index + 1, "sharegpt")
        if base == "vllm" and words[index + 1 : index + 3] == ["bench", "serve"]:
            return _Program(index, index + 3, "random")
        if base == "vllm" and words[index + 1 : index + 2] == ["bench"]:
            got = " ".join(words[index + 1 : index + 3])
            reading.fault(f"wanted 'vllm bench serve …', got 'vllm {got}', which has no server")
            return None
    if not reading.faults:
        reading.fault(f"wanted 'vllm bench serve …' or 'python {_SCRIPT} …', got {beginning(words)}")
    return None


def _general_lengths_last(given: Sequence[Given]) -> list[Given]:
    """``--input-len`` and ``--output-len`` hold whatever ``--random-…-len`` says, as in vLLM."""
    return sorted(given, key=lambda one: spelt(one.name) in ("--input-len", "--output-len"))


def _leave_out(name: str, flag: Flag, reading: Reading) -> None:
    remedy = _REFUSED.get(spelt(name))
    if remedy:
        reading.fault(f"{name}: not simulated; {remedy}")
    elif flag.why:
        reading.ignore(name, flag.why)


def _check_dataset(dataset: str, given: Sequence[Given], reading: Reading) -> None:
    """Refuse what needs a file of texts, or a tokenizer to count their tokens."""
    if dataset == "random":
        for one in given:
            if spelt(one.name) in ("--dataset-path", "--dataset"):
                reading.fault(f"{one.name}: the data set random has no file; leave it out")
        return
    is_default = not any(spelt(one.name) == "--dataset-name" for one in given)
    reading.fault(
        f"--dataset-name: {'the default ' if is_default else ''}{shown(dataset)} is not a data set that simkv "
        "can make; use random with --random-input-len and --random-output-len, or describe the lengths in a "
        "scenario file (docs/scenarios.md)"
    )
