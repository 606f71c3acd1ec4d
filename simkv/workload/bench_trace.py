"""The result of ``vllm bench serve --save-result --save-detailed`` as a trace: its lengths and arrivals."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from simkv.spec.workload import MAX_DURATION_S, WorkloadSpec
from simkv.units import NS_PER_S, to_s
from simkv.workload.arrivals import arrival_times_ns
from simkv.workload.faults import SECONDS, Arrivals, Faults, add_not_utf8, shown_value, units_ns
from simkv.workload.traces import TraceRow

_LINE = 1  # the file is one object, written on one line


def read_vllm_bench(file: BinaryIO, faults: Faults, seed: int) -> Iterator[TraceRow | None]:
    """Yield the requests of a result in the order in which they were sent.

    Lengths are ``input_lens`` and ``output_lens``; a request of 0 outputs failed, and is skipped and counted.
    Arrivals are ``start_times`` (when requests were sent, after any wait for ``--max-concurrency``), the first
    at 0. Older versions do not write them: then they are drawn as vLLM draws them, from the file's
    ``request_rate`` and ``burstiness`` and `seed`; all come at once if the rate is ``inf`` or missing.

    Unlike the other formats this one must be held whole, for it is a single object.
    """
    result = _load(file, faults)
    if result is None:
        return
    columns = [_column(result, name, faults) for name in ("input_lens", "output_lens")]
    if None in columns:
        return
    input_lens, output_lens = (column or [] for column in columns)
    n = len(input_lens)
    has_times = "start_times" in result
    arrivals_ns = _start_times(result, n, faults) if has_times else _drawn(result, n, seed, faults)
    if len(output_lens) != n:
        faults.add(_LINE, "output_lens", f"{n} numbers as in input_lens", f"{len(output_lens)}")
    if faults.count:
        return
    sent = sorted(range(n), key=lambda i: arrivals_ns[i])
    sent = [i for i in sent if output_lens[i] != 0]
    faults.num_skipped += n - len(sent)
    if not sent:
        got = "failed ones only" if n else "an empty list"
        faults.add(_LINE, "input_lens", "at least one request", got)
    arrivals = Arrivals(faults, "start_times", SECONDS, from_first=has_times)
    for i in sent:
        arrival_ns = arrivals.check(_LINE, arrivals_ns[i], to_s(arrivals_ns[i]))
        num_prompt_tokens = _num_tokens(faults, "input_lens", i, input_lens[i])
        num_output_tokens = _num_tokens(faults, "output_lens", i, output_lens[i])
        if arrival_ns is None or num_prompt_tokens is None or num_output_tokens is None:
            yield None
        else:
            yield TraceRow(arrival_ns, num_prompt_tokens, num_output_tokens)


def _load(file: BinaryIO, faults: Faults) -> dict[str, Any] | None:
    wanted = "the JSON object that vllm bench serve writes"
    try:
        text = file.read().decode("utf-8-sig")
        result = json.loads(text)
    except UnicodeDecodeError as error:
        add_not_utf8(faults, error.object.count(b"\n", 0, error.start) + 1, error)
    except json.JSONDecodeError as error:
        got = f"{error.msg} at column {error.colno}" if text.strip() else "an empty file"
        if error.msg == "Extra data":
            got = "more after it; keep one of the results that --append-result has joined"
        faults.add(error.lineno, "text", wanted, got)
    except (ValueError, RecursionError):  # an integer of thousands of digits; brackets by the thousand
        faults.add(_LINE, "text", wanted, "numbers or brackets beyond all bounds")
    else:
        if isinstance(result, dict):
            return result
        faults.add(_LINE, "text", wanted, shown_value(result))
    return None


def _column(result: dict[str, Any], name: str, faults: Faults) -> list[Any] | None:
    value = result.get(name)
    if isinstance(value, list):
        return value
    hint = "; have vllm bench serve write it with --save-detailed" if value is None else ""
    faults.add(_LINE, name, "a list with a number for every request", f"{shown_value(value)}{hint}")
    return None


def _start_times(result: dict[str, Any], n: int, faults: Faults) -> list[int]:
    """Return when each request was sent, in ns of the client's clock."""
    values = _column(result, "start_times", faults) or []
    if len(values) != n:
        faults.add(_LINE, "start_times", f"{n} numbers as in input_lens", f"{len(values)}")
    times_ns = []
    for i, value in enumerate(values):
        time_ns = units_ns(value, NS_PER_S)
        if time_ns is None:
            faults.add(_LINE, f"start_times[{i}]", SECONDS, shown_value(value))
        else:
            times_ns.append(time_ns)
    return times_ns


def _drawn(result: dict[str, Any], n: int, seed: int, faults: Faults) -> list[int]:
    """Return arrival times with the rate and the burstiness that the file names."""
    if result.get("ramp_up_strategy") is not None:
        faults.add(_LINE, "start_times", "times, for the rate was not constant (ramp_up_strategy)", "nothing")
        return []
    rate, burstiness = result.get("request_rate"), result.get("burstiness", 1.0)
    if rate in (None, "inf", math.inf):
        return [0] * n
    if not _is_number(rate) or not n / MAX_DURATION_S <= rate <= 1e9:
        faults.add(_LINE, "request_rate", "requests per second or 'inf'", shown_value(rate))
        return []
    if burstiness == math.inf:
        process: dict[str, Any] = {"arrival": "constant"}
    elif _is_number(burstiness) and 1e-6 <= burstiness <= 1e6:
        process = {"burstiness": float(burstiness)}
    else:
        faults.add(_LINE, "burstiness", "a number above 0", shown_value(burstiness))
        return []
    workload = WorkloadSpec(dataset_name="random", num_prompts=n or None, request_rate=float(rate), **process)
    return arrival_times_ns(workload, n, np.random.RandomState(seed % 2**32))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _num_tokens(faults: Faults, name: str, index: int, value: Any) -> int | None:
    count = value if type(value) is int else None
    return faults.num_tokens(_LINE, f"{name}[{index}]", count, value)
