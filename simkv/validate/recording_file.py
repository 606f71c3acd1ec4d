"""Reading a recording of a scheduler: the schema of ``docs/recordings.md``, with every fault named."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from simkv.errors import TraceError
from simkv.scheduler.waiting import WAITING_QUEUES

_MAX_FAULTS = 20
_MOST = 10**9  # any count, step or id; more is a slip
_MAX_LEN_TOKENS = 10**7  # the longest context that any model claims
_MAX_NUM_GPU_BLOCKS = 10**7  # the pool holds them one by one


class _Wanted(NamedTuple):
    """What a value must be, in words and as a test."""

    words: str
    accepts: Callable[[Any], bool]


def _integer(least: int, most: int = _MOST) -> _Wanted:
    return _Wanted(f"an integer from {least:,} to {most:,}", lambda x: type(x) is int and least <= x <= most)


def _number(least: int, most: int) -> _Wanted:
    return _Wanted(
        f"a number from {least:,} to {most:,}", lambda x: type(x) in (int, float) and least <= x <= most
    )


_OBJECT = _Wanted("an object", lambda x: isinstance(x, dict))
_LIST = _Wanted("a list", lambda x: isinstance(x, list))
_BOOLEAN = _Wanted("true or false", lambda x: isinstance(x, bool))
_POLICY = _Wanted(" or ".join(WAITING_QUEUES), lambda x: isinstance(x, str) and x in WAITING_QUEUES)
_SEGMENT = (_integer(0, 2**62), _integer(1, _MAX_LEN_TOKENS))
_PROMPT = _Wanted(
    "a list of [start, length]",
    lambda x: isinstance(x, list) and bool(x) and all(map(_is_segment, x)),
)

SCHEDULER_KEYS = {
    "max_num_seqs": _integer(1),
    "max_num_batched_tokens": _integer(1),
    "max_model_len": _integer(1),
    "enable_chunked_prefill": _BOOLEAN,
    "long_prefill_token_threshold": _integer(0),
    "long_prefill_token_threshold_adaptive": _BOOLEAN,
    "policy": _POLICY,
    "scheduler_reserve_full_isl": _BOOLEAN,
    "async_scheduling": _BOOLEAN,
    "pipeline_parallel_size": _integer(1, 1000),
}
_KV_KEYS = {
    "block_size": _integer(1),
    "num_gpu_blocks": _integer(1, _MAX_NUM_GPU_BLOCKS),
    "enable_prefix_caching": _BOOLEAN,
    "watermark": _number(0, 1),
}
_TOP_KEYS = {"config": _OBJECT, "requests": _LIST, "steps": _LIST, "out_base": _integer(0)}
_REQUEST_KEYS = {
    "id": _integer(0),
    "arrival": _number(0, _MOST),
    "prompt": _PROMPT,
    "max_tokens": _integer(1),
    "priority": _integer(-_MOST),
}
_OPTIONAL_KEYS = {"stop_after": _integer(1)}


def read_recording(path: Path) -> dict[str, Any]:
    """Read a recording; raise TraceError with a line for each fault, the first 20 of them."""
    try:
        recording = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: wanted a recording in JSON, got text that is not JSON ({error})") from None
    if not isinstance(recording, dict):
        raise TraceError(f"{path}: wanted an object with config, requests and steps, got {_shown(recording)}")
    faults = [f"{path}: {fault}" for fault in _recording_faults(recording)]
    if len(faults) > _MAX_FAULTS:
        faults = [*faults[:_MAX_FAULTS], f"… and {len(faults) - _MAX_FAULTS:,} more"]
    if faults:
        raise TraceError(faults)
    return recording


def _recording_faults(recording: dict[str, Any]) -> Iterator[str]:
    faults = [*_faults_in(recording, _TOP_KEYS)]
    if faults:
        yield from faults
        return
    requests, steps = recording["requests"], recording["steps"]
    yield from _faults_in(recording["config"], SCHEDULER_KEYS | _KV_KEYS, "config.")
    for i, request in enumerate(requests):
        has_stop = isinstance(request, dict) and request.get("stop_after") is not None
        wanted = _REQUEST_KEYS | (_OPTIONAL_KEYS if has_stop else {})
        yield from _faults_in(request, wanted, f"requests.{i}.")
    ids = Counter(str(request.get("id")) for request in requests if isinstance(request, dict))
    yield from (
        f"requests: wanted ids that differ, got {request_id} {count} times"
        for request_id, count in ids.items()
        if count > 1
    )
    for i, step in enumerate(steps):
        yield from _faults_in(step, {"step": _integer(0)}, f"steps.{i}.")


def _faults_in(mapping: Any, wanted: Mapping[str, _Wanted], prefix: str = "") -> Iterator[str]:
    if not isinstance(mapping, dict):
        yield f"{prefix.rstrip('.')}: wanted an object, got {_shown(mapping)}"
        return
    for key, kind in wanted.items():
        if key not in mapping:
            yield f"{prefix}{key}: missing"
        elif not kind.accepts(mapping[key]):
            yield f"{prefix}{key}: wanted {kind.words}, got {_shown(mapping[key])}"


def _is_segment(segment: Any) -> bool:
    if not isinstance(segment, list) or len(segment) != len(_SEGMENT):
        return False
    return all(kind.accepts(value) for kind, value in zip(_SEGMENT, segment, strict=True))


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"
