"""The wordings of vLLM's start-up logs: which lines state what."""

from __future__ import annotations

import re

_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_GIB = _NUMBER + r" ?G(?:i)?B"
_COUNT = r"([0-9][0-9,]*)"

# Each pattern with the names of what its groups hold; a dot in a name makes it a field of the scenario.
PATTERNS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = tuple(
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
REFUSED = (
    "KV cache is needed, which is larger than",
    "is larger than the maximum number of tokens that can be stored in KV cache",
    "No available memory for the cache blocks",
    "is less than desired GPU memory utilization",
)
OOM = re.compile(r"OutOfMemoryError|CUDA out of memory|warming up sampler.*memory", re.IGNORECASE)
STARTED = re.compile(
    r"init engine \(profile|Application startup complete|Starting vLLM API server|Maximum concurrency for",
    re.I,
)
# Lines that list options: their own name and that of the flag.
HAS_OPTIONS = re.compile(r"non-default args|args: Namespace\(|engine \(.*\) with config|with config: ")
OPTIONS = {
    name: name
    for name in (
        "model", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size",
        "decode_context_parallel_size", "dtype", "quantization", "kv_cache_dtype", "max_model_len", "max_num_seqs",
        "max_num_batched_tokens", "gpu_memory_utilization", "block_size", "num_gpu_blocks_override",
        "kv_cache_memory_bytes", "enforce_eager", "enable_expert_parallel",
    )
} | {"model_tag": "model", "max_seq_len": "max_model_len"}  # fmt: skip
# Options that change memory and that no prediction takes in.
NOT_TAKEN = tuple(
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
CACHED = re.compile(r"\bmodels--([^/]+?)--([^/]+)")  # a snapshot in Hugging Face's cache
BEGINS = re.compile(r"vLLM API server version|Initializing an? (?:V1 )?LLM engine", re.IGNORECASE)
FEWEST = ("kv_tokens", "num_gpu_blocks", "max_concurrency")
# One of these is in every line that is known; most lines of a long log are told apart by that alone.
SIGNS = (
    "memory", " took ", "blocks:", "kv cache size", "maximum concurrency", "max_num_batched_tokens", "version",
    "max seq len", "maximum model length", "maximum number of tokens", "args", "config", "engine (",
    "startup complete", "starting vllm", "device_name=", "gpu 0:",
)  # fmt: skip
GPU = re.compile(r"device_name=((?:NVIDIA|AMD|Tesla)[\w-]+)|\bGPU 0: (NVIDIA [^(|,]+)")
RANK = re.compile(r"\brank[= ]([0-9]+)")
STAGE = re.compile(r"\bWorker[^ )]*?PP_?([0-9]+)")
