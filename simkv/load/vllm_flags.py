"""The flags of ``vllm serve``: which field each sets, or why it sets none.

Names as in vLLM 0.8 to 0.32 (`engine.arg_utils`, `entrypoints.openai.cli_args`). Only the numbers that
vLLM itself reads with suffixes take them.
"""

from __future__ import annotations

from typing import Any

from simkv.load.command_line import (
    NO_EFFECT,
    NOT_SIMULATED,
    Flag,
    Left,
    WrongValueError,
    decimal_number,
    human_number,
    whole_number,
)

_DTYPES = {"half": "float16", "float": "float32"}
# 128 is the group of nearly all AWQ and GPTQ checkpoints.
_GPTQ = {"method": "w4a16", "group_size": 128}
_AWQ = {**_GPTQ, "has_zero_points": True}
_QUANTIZATIONS: dict[str, dict[str, Any]] = {
    "fp8": {"method": "fp8"},
    "modelopt": {"method": "fp8"},
    "modelopt_fp4": {"method": "nvfp4", "group_size": 16},
    "mxfp4": {"method": "mxfp4", "group_size": 32},
    "gptq": _GPTQ,
    "gptq_marlin": _GPTQ,
    "awq": _AWQ,
    "awq_marlin": _AWQ,
}


def _max_model_len(text: str) -> int | Left:
    if text.strip().lower() in ("auto", "-1"):
        return Left(
            "the model's own length is taken; where it does not fit, 'simkv plan' says what does", True
        )
    return human_number(text)


def _dtype(text: str) -> str | None:
    return None if text == "auto" else _DTYPES.get(text, text)


def _quantization(text: str) -> dict[str, Any] | Left | None:
    if text.lower() == "none":
        return None
    return _QUANTIZATIONS.get(text) or Left(f"{text}: {NOT_SIMULATED}; the checkpoint's own format is taken")


def _written_out(text: str) -> str:
    raise WrongValueError("the flags of the file written out")


def _texts(texts: list[str]) -> list[str]:
    if not texts:
        raise WrongValueError("a value")
    return texts


_FIELDS: tuple[tuple[str, Any, str, str], ...] = (  # section, parser, what it wants, names
    (
        "parallel", whole_number, "a number",
        "tensor-parallel-size pipeline-parallel-size data-parallel-size decode-context-parallel-size "
        "prefill-context-parallel-size",
    ),
    ("parallel", None, "", "enable-expert-parallel"),
    (
        "engine", whole_number, "a number",
        "max-num-seqs block-size num-gpu-blocks-override long-prefill-token-threshold",
    ),
    ("engine", human_number, "a number", "max-num-batched-tokens kv-cache-memory-bytes"),
    ("engine", _max_model_len, "a number", "max-model-len"),
    ("engine", decimal_number, "a number", "gpu-memory-utilization swap-space watermark"),
    ("engine", str, "a value", "kv-cache-dtype scheduling-policy distributed-executor-backend"),
    (
        "engine", None, "",
        "enable-prefix-caching enable-chunked-prefill async-scheduling enforce-eager disable-custom-all-reduce "
        "scheduler-reserve-full-isl long-prefill-token-threshold-adaptive",
    ),
)  # fmt: skip
_ALIASES = {
    "-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size",
    "-dcp": "--decode-context-parallel-size", "-pcp": "--prefill-context-parallel-size", "-q": "--quantization",
    "--kv-cache-memory": "--kv-cache-memory-bytes", "--model-tag": "--model", "-ep": "--enable-expert-parallel",
    "-n": "--nnodes", "-r": "--node-rank", "-dpn": "--data-parallel-rank", "-dpr": "--data-parallel-start-rank",
    "-dpl": "--data-parallel-size-local", "-dpa": "--data-parallel-address", "-dpp": "--data-parallel-rpc-port",
    "-dpb": "--data-parallel-backend", "-dph": "--data-parallel-hybrid-lb", "-dpe": "--data-parallel-external-lb",
    "-cc": "--compilation-config", "-ac": "--attention-config", "-asc": "--api-server-count",
}  # fmt: skip

# What takes one value, is a switch, takes many values; and why it sets no field.
_OTHERS: tuple[tuple[str, str, str], ...] = (
    (
        NO_EFFECT, "one",
        """host port uds tokenizer tokenizer-mode tokenizer-revision revision
        code-revision hf-config-path config-format load-format download-dir safetensors-load-strategy
        model-loader-extra-config pt-load-map-location max-parallel-loading-workers seed
        generation-config override-generation-config guided-decoding-backend structured-outputs-config
        logits-processor-pattern max-logprobs logprobs-mode tool-call-parser
        tool-parser-plugin reasoning-parser reasoning-parser-plugin chat-template
        chat-template-content-format response-role root-path ssl-keyfile ssl-certfile ssl-ca-certs
        ssl-cert-reqs ssl-ciphers uvicorn-log-level max-log-len log-config-file otlp-traces-endpoint
        collect-detailed-traces show-hidden-metrics-for-version kv-cache-metrics-sample kv-events-config
        prefix-caching-hash-algo api-server-count task runner convert allowed-local-media-path
        media-io-kwargs h11-max-incomplete-event-size h11-max-header-count
        profiler-config tool-server io-processor-plugin worker-extension-cls
        data-parallel-rank data-parallel-start-rank data-parallel-size-local data-parallel-address
        data-parallel-rpc-port data-parallel-backend master-addr master-port device
        default-chat-template-kwargs disable-access-log-for-endpoints shutdown-timeout renderer-num-workers
        distributed-timeout-seconds fingerprint-mode fingerprint-value reasoning-config""",
    ),
    (
        NO_EFFECT, "many",
        """api-key served-model-name hf-token allowed-origins allowed-methods allowed-headers middleware
        allowed-media-domains ignore-patterns logits-processors""",
    ),
    (
        NO_EFFECT, "switch",
        """trust-remote-code disable-log-requests enable-log-requests disable-log-stats
        disable-uvicorn-access-log enable-log-outputs enable-log-deltas disable-fastapi-docs
        disable-frontend-multiprocessing enable-auto-tool-choice enable-reasoning allow-credentials
        enable-ssl-refresh enable-request-id-headers return-tokens-as-token-ids skip-tokenizer-init
        enable-prompt-tokens-details enable-server-load-tracking enable-force-include-usage
        enable-tokenizer-info-endpoint exclude-tools-when-tool-choice-none trust-request-chat-template
        use-tqdm-on-load enable-sleep-mode kv-cache-metrics cudagraph-metrics enable-mfu-metrics
        enable-layerwise-nvtx-tracing enable-logging-iteration-details aggregate-engine-logging
        calculate-kv-scales use-v2-block-manager disable-async-output-proc headless
        data-parallel-hybrid-lb data-parallel-external-lb interleave-mm-strings allow-deprecated-quantization
        ray-workers-use-nsight enable-prompt-embeds enable-return-routed-experts disable-mm-preprocessor-cache
        fail-on-environ-validation log-error-stack enable-offline-docs tokens-only grpc""",
    ),
    ("the GPUs are those of --hardware", "one", "nnodes node-rank"),
    (
        NOT_SIMULATED, "one",
        """speculative-config kv-transfer-config ec-transfer-config compilation-config attention-config
        attention-backend cpu-offload-gb kv-offloading-size kv-offloading-backend performance-mode
        optimization-level max-num-partial-prefills max-long-partial-prefills stream-interval scheduler-cls
        worker-cls model-impl additional-config max-loras max-lora-rank max-cpu-loras lora-dtype
        num-scheduler-steps num-lookahead-slots preemption-mode scheduler-delay-factor max-seq-len-to-capture
        max-cudagraph-capture-size cp-kv-cache-interleave-size dcp-kv-cache-interleave-size dcp-comm-backend
        all2all-backend ubatch-size dbo-decode-token-threshold dbo-prefill-token-threshold eplb-config
        expert-placement-strategy mamba-cache-dtype mamba-ssm-cache-dtype mamba-block-size mamba-cache-mode
        limit-mm-per-prompt mm-processor-kwargs mm-processor-cache-gb mm-processor-cache-type
        mm-shm-cache-max-object-size-mb mm-encoder-tp-mode mm-encoder-attn-backend video-pruning-rate
        pooler-config override-pooler-config override-attention-dtype weight-transfer-config
        speculative-model num-speculative-tokens kernel-config moe-backend linear-backend mamba-backend
        gdn-prefill-backend quantization-config offload-backend offload-group-size offload-num-in-group
        offload-prefetch-step -O""",
    ),
    (
        NOT_SIMULATED, "many",
        "lora-modules default-mm-loras cudagraph-capture-sizes cuda-graph-sizes offload-params cpu-offload-params",
    ),
    (
        NOT_SIMULATED, "switch",
        """enable-lora fully-sharded-loras enable-tower-connector-lora specialize-active-lora
        enable-eplb enable-dbo disable-sliding-window disable-cascade-attn
        disable-hybrid-kv-cache-manager disable-chunked-mm-input kv-sharing-fast-prefill skip-mm-profiling
        mm-encoder-only enable-mm-embeds disable-nccl-for-dp-synchronization enable-elastic-ep
        language-model-only enable-flashinfer-autotune enable-batch-sharded-sampling numa-bind
        enable-ep-weight-filter""",
    ),
    (
        f"{NOT_SIMULATED}; a longer context needs --set model.max_position_embeddings=N", "one",
        "hf-overrides rope-scaling rope-theta",
    ),
)  # fmt: skip


def serve_flags() -> dict[str, Flag]:
    """Return every flag that is known, by its name with hyphens."""
    flags: dict[str, Flag] = {
        "--model": Flag("one", ("model",), str, "a model"),
        "--dtype": Flag("one", ("model", "dtype"), _dtype),
        "--quantization": Flag("one", ("model", "quantization"), _quantization),
        "--config": Flag("one", None, _written_out, "the flags of the file written out"),
    }
    for section, parse, wanted, names in _FIELDS:
        for name in names.split():
            path = (section, name.replace("-", "_"))
            flags[f"--{name}"] = Flag("one", path, parse, wanted) if parse else Flag("switch", path)
    for why, takes, names in _OTHERS:
        # Some lists that are without effect may be empty (--hf-token).
        parse_list = _texts if why == NOT_SIMULATED else list
        for name in names.split():
            flag = Flag(takes, None, parse_list if takes == "many" else str, why=why)
            flags[name if name[0] == "-" else f"--{name}"] = flag
    flags |= {alias: flags[name] for alias, name in _ALIASES.items()}
    return flags
