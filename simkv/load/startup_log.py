"""What a vLLM server's start-up log says: the options it ran with, and the memory it measured.

Wordings of V0 and of V1 up to 0.32; lines that are not known are passed over. Figures are in GiB, which older
versions called GB, or counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from simkv.errors import TraceError
from simkv.load.command_line import FieldPath, Flag, Left, WrongValueError
from simkv.load.vllm_flags import serve_flags
from simkv.units import GIB

MAX_LOG_BYTES = 200_000_000  # a start-up log has kilobytes; beyond this it is another file
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_GIB = _NUMBER + r" ?G(?:i)?B"
_COUNT = r"([0-9][0-9,]*)"


class Stated(NamedTuple):
    """A value of the log and the line, from 1, that states it."""

    value: Any
    line: int


@dataclass
class StartupLog:
    """What one log says.

    settings   options and the GPU's memory, by the path of their field
    figures    what was measured, by name and pipeline stage; logs of one rank have stage 0
    outcome    ``started``, ``refused``, ``oom``, or None if the log ends before it is known
    error      the line that tells why it did not start
    gpu        the GPU's name, which vLLM prints where it looks for a tuned kernel; empty if it does not
    warnings   what the log says and a prediction does not take in
    """

    path: str
    settings: dict[FieldPath, Stated] = field(default_factory=dict)
    figures: dict[str, dict[int, Stated]] = field(default_factory=dict)
    outcome: str | None = None
    error: str = ""
    gpu: str = ""
    warnings: list[str] = field(default_factory=list)

    def figure(self, name: str, stage: int = 0) -> float | None:
        """A figure of a stage, None where the log does not show it."""
        stated = self.figures.get(name, {}).get(stage)
        return None if stated is None else stated.value


# Each pattern with the names of what its groups hold; a dot in a name makes it a field of the scenario.
_PATTERNS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), tuple(names.split()))
    for pattern, names in (
        (rf"(?:Model loading|Loading model weights) took {_GIB}", "weights"),
        (rf"Available KV cache memory: (-?{_NUMBER}) ?GiB", "kv -"),
        (rf"GPU KV cache size: {_COUNT} tokens", "kv_tokens"),
        (
            rf"Maximum concurrency for {_COUNT} tokens per request: {_NUMBER}x",
            "engine.max_model_len max_concurrency",
        ),
        (rf"# (?:GPU|cuda) blocks: {_COUNT}", "num_gpu_blocks"),
        (
            rf"total_gpu_memory \({_GIB}\) x gpu_memory_utilization \({_NUMBER}\)",
            "total engine.gpu_memory_utilization",
        ),
        (
            rf"model weights take {_GIB}; non_torch_memory takes (-?{_NUMBER}) ?GiB; "
            rf"PyTorch activation peak memory takes {_GIB}; "
            rf"the rest of the memory reserved for KV Cache is (-?{_NUMBER}) ?GiB",
            "weights non_torch - activation kv -",
        ),
        (
            rf"torch peak memory increase: {_GIB}; non-torch forward increase memory: {_GIB}; "
            rf"weights memory: {_GIB}",
            "activation non_torch weights",
        ),
        (  # V0, from 0.6.4 on
            rf"total_gpu_memory={_GIB} .*?peak_torch_memory={_GIB} .*?non_torch_memory=(-?{_NUMBER}) ?GiB "
            rf"kv_cache_size=(-?{_NUMBER}) ?GiB gpu_memory_utilization={_NUMBER}",
            "total peak non_torch - kv - engine.gpu_memory_utilization",
        ),
        (rf"Requested memory: {_NUMBER} \(util\)", "engine.gpu_memory_utilization"),
        (
            rf"Free memory on device (?:\S+ )?\({_NUMBER}/{_NUMBER} GiB\) on startup",
            "- total",
        ),
        (rf"GPU [0-9]+ has a total capacity of {_GIB}", "total"),
        (rf"Desired GPU memory utilization is \({_NUMBER}, ", "engine.gpu_memory_utilization"),
        (rf"less than desired GPU memory utilization \({_NUMBER}, ", "engine.gpu_memory_utilization"),
        (
            rf"Actual usage is {_GIB} for weights?, {_GIB} for peak activation, "
            rf"(-?{_NUMBER}) ?GiB for non-torch memory, and {_GIB} for CUDAGraph memory",
            "weights activation non_torch - graphs",
        ),
        (
            rf"Actual usage is {_GIB} for consumed memory[^,]*, {_GIB} for peak activation[^,]*, "
            rf"and {_GIB} for CUDAGraph memory",
            "consumed headroom graphs",
        ),
        (rf"Current kv cache memory in use is {_GIB}", "kv"),
        (rf"Estimated CUDA graph memory: {_GIB}", "graphs_estimated"),
        (rf"Graph capturing finished in [0-9.]+ secs?, took {_GIB}", "graphs"),
        (
            rf"CUDA graph pool memory: {_GIB} \(actual\), {_GIB} \(estimated\)",
            "graph_pool graphs_estimated",
        ),
        (
            r"Chunked prefill is enabled with max_num_batched_tokens=([0-9]+)",
            "engine.max_num_batched_tokens",
        ),
        (
            r"(?:vLLM(?: API server)? version|LLM engine \(v?|[█▀▄ ]{3,}version) ?v?([0-9]+\.[0-9]+[\w.+-]*)",
            "engine.vllm_version",
        ),
        (
            rf"max seq len \({_COUNT}\).*?{_GIB} KV cache is needed.*?available KV cache memory \({_GIB}\)",
            "engine.max_model_len need kv",
        ),
        (rf"estimated maximum model length is {_COUNT}", "longest"),
    )
)
_REFUSED = (
    "KV cache is needed, which is larger than",
    "is larger than the maximum number of tokens that can be stored in KV cache",
    "No available memory for the cache blocks",
    "is less than desired GPU memory utilization",
)
_OOM = re.compile(r"OutOfMemoryError|CUDA out of memory|warming up sampler.*memory", re.IGNORECASE)
_STARTED = re.compile(
    r"init engine \(profile|Application startup complete|Starting vLLM API server|Maximum concurrency for",
    re.I,
)
# Lines that list options: their own name and that of the flag.
_HAS_OPTIONS = re.compile(r"non-default args|args: Namespace\(|engine \(.*\) with config|with config: ")
_OPTIONS = {
    name: name
    for name in (
        "model", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size",
        "decode_context_parallel_size", "dtype", "quantization", "kv_cache_dtype", "max_model_len", "max_num_seqs",
        "max_num_batched_tokens", "gpu_memory_utilization", "block_size", "num_gpu_blocks_override",
        "kv_cache_memory_bytes", "enforce_eager", "enable_expert_parallel",
    )
} | {"model_tag": "model", "max_seq_len": "max_model_len"}  # fmt: skip
# Options that change memory and that no prediction takes in.
_NOT_TAKEN = tuple(
    (re.compile(pattern, re.IGNORECASE), f"the log has {name}: {what}")
    for pattern, name, what in (
        (
            r"quantization'?[=:]\s*'?bitsandbytes",
            "quantization=bitsandbytes",
            "weights are taken as not quantised",
        ),
        (
            r"cpu_offload_gb'?[=:]\s*(?!0(?:\.0)?\b)[0-9.]",
            "cpu_offload_gb",
            "all weights are taken to be on the GPU",
        ),
        (r"enable_lora'?[=:]\s*True", "enable_lora", "adapters are not counted"),
        (
            r"speculative_config'?[=:]\s*(?!None)[\w{']",
            "a speculative_config",
            "the draft model is not counted",
        ),
    )
)
_CACHED = re.compile(r"\bmodels--([^/]+?)--([^/]+)")  # a snapshot in Hugging Face's cache
_BEGINS = re.compile(r"vLLM API server version|Initializing an? (?:V1 )?LLM engine", re.IGNORECASE)
_FEWEST = ("kv_tokens", "num_gpu_blocks", "max_concurrency")
# One of these is in every line that is known; most lines of a long log are told apart by that alone.
_SIGNS = (
    "memory", " took ", "blocks:", "kv cache size", "maximum concurrency", "max_num_batched_tokens", "version",
    "max seq len", "maximum model length", "maximum number of tokens", "args", "config", "engine (",
    "startup complete", "starting vllm", "device_name=", "gpu 0:",
)  # fmt: skip
_GPU = re.compile(r"device_name=((?:NVIDIA|AMD|Tesla)[\w-]+)|\bGPU 0: (NVIDIA [^(|,]+)")
_RANK = re.compile(r"\brank[= ]([0-9]+)")
_STAGE = re.compile(r"\bWorker[^ )]*?PP_?([0-9]+)")


def read_startup_log(path: Path) -> StartupLog:
    """Read a log; raise TraceError if it cannot be read or has none of vLLM's memory lines."""
    try:
        if path.stat().st_size > MAX_LOG_BYTES:
            raise TraceError(f"{path}: wanted a start-up log, got more than {MAX_LOG_BYTES:,} bytes")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_startup_log(text, str(path))


def parse_startup_log(text: str, source: str = "log") -> StartupLog:
    """Return what the lines of a log state; of several the first holds, a stage each, of blocks the fewest.

    Of several servers in a file the first is read.

    >>> log = parse_startup_log("INFO ... Model loading took 14.99 GiB and 6.1 seconds")
    >>> log.figure("weights"), log.figure("kv")
    (14.99, None)

    Raises TraceError if there is none of vLLM's memory lines.
    """
    log = StartupLog(source)
    flags = serve_flags()
    ranks: list[tuple[str, int, Stated]] = []  # figures of a rank: its stage is known at the end
    for number, line in enumerate(text.splitlines(), start=1):
        lowered = line.lower()
        if _BEGINS.search(line) and (log.error or set(_FEWEST) & set(log.figures)):
            log.warnings.append(f"line {number} begins another server: only the first is read")
            break
        if not any(sign in lowered for sign in _SIGNS):
            continue
        if _HAS_OPTIONS.search(line):
            _read_options(line, number, flags, log)
        for name, value in _values(line):
            _note(name, Stated(value, number), line, log, ranks)
        _judge(line, log)
        if not log.gpu and (match := _GPU.search(line)):
            log.gpu = (match[1] or match[2]).replace("_", " ").strip()
    tp = log.settings.get(("parallel", "tensor_parallel_size"), Stated(1, 0)).value
    for name, rank, stated in ranks:
        _keep(log.figures.setdefault(name, {}), name, rank // tp, stated)
    _peak_to_activation(log)
    if ("engine", "vllm_version") not in log.settings:
        log.warnings.append("the log does not state vLLM's version")
    if not log.figures and not log.error:
        raise TraceError(
            f"{source}: wanted a vLLM start-up log, with a line such as 'Model loading took 14.99 GiB' or "
            "'GPU KV cache size: 399,024 tokens', got none"
        )
    return log


def _values(line: str) -> Iterator[tuple[str, float | str]]:
    for pattern, names in _PATTERNS:
        for match in pattern.finditer(line):
            for name, text in zip(names, match.groups(), strict=True):
                if name == "engine.vllm_version":
                    yield name, text
                elif name != "-":
                    yield name, float(text.replace(",", ""))


def _note(
    name: str, stated: Stated, line: str, log: StartupLog, ranks: list[tuple[str, int, Stated]]
) -> None:
    section, dot, option = name.partition(".")
    if dot:
        value = stated.value
        if isinstance(value, float) and value.is_integer() and option != "gpu_memory_utilization":
            value = int(value)
        log.settings.setdefault((section, option), stated._replace(value=value))
    elif name == "total":
        quantity = {"value": stated.value * GIB, "source": f"{log.path}:{stated.line}"}
        log.settings.setdefault(("hardware", "gpu", "memory_bytes"), stated._replace(value=quantity))
        log.figures.setdefault(name, {}).setdefault(0, stated)
    elif match := _RANK.search(line):
        ranks.append((name, int(match[1]), stated))
    else:
        stage = int(match[1]) if (match := _STAGE.search(line)) else 0
        _keep(log.figures.setdefault(name, {}), name, stage, stated)


def _keep(by_stage: dict[int, Stated], name: str, stage: int, stated: Stated) -> None:
    """Keep the first figure of a stage; of graphs the last, since from 0.21 on the first is an estimate's.

    Every worker prints its own blocks and tokens in some versions: the fewest decide.
    """
    known = by_stage.get(stage)
    is_fewer = name in _FEWEST and known is not None and stated.value < known.value
    if known is None or name == "graphs" or is_fewer:
        by_stage[stage] = stated


def _peak_to_activation(log: StartupLog) -> None:
    """V0 from 0.6.4 on states the peak with the weights in it."""
    for stage, peak in log.figures.get("peak", {}).items():
        weights = log.figures.get("weights", {}).get(stage)
        if weights is not None and "activation" not in log.figures:
            log.figures["activation"] = {stage: peak._replace(value=round(peak.value - weights.value, 2))}


def _read_options(line: str, number: int, flags: dict[str, Flag], log: StartupLog) -> None:
    """Take the options of a line such as ``non-default args: {'max_model_len': 8192}``."""
    for pattern, what in _NOT_TAKEN:
        if pattern.search(line) and what not in log.warnings:
            log.warnings.append(what)
    for option, name in _OPTIONS.items():
        match = re.search(rf"\b{option}'?\s*[=:]\s*(?:'([^']*)'|\"([^\"]*)\"|([^\s,)}}\]]+))", line)
        text = next((group for group in match.groups() if group), "") if match else ""
        if text in ("", "None", "auto"):
            continue
        if cached := _CACHED.search(text):
            text = f"{cached[1]}/{cached[2]}"
        flag = flags["--" + name.replace("_", "-")]
        assert flag.path is not None
        try:
            value = text == "True" if flag.takes == "switch" else flag.parse(text.removeprefix("torch."))
        except WrongValueError:
            continue  # a form of the option that is not known
        if value is not None and not isinstance(value, Left):
            log.settings.setdefault(flag.path, Stated(value, number))


def _judge(line: str, log: StartupLog) -> None:
    """Note what became of the start-up."""
    if any(phrase in line for phrase in _REFUSED):
        outcome = "refused"
    elif _OOM.search(line):
        outcome = "oom"
    elif _STARTED.search(line) and log.outcome is None:
        log.outcome = "started"
        return
    else:
        return
    if not log.error:
        log.outcome, log.error = outcome, line.strip()
