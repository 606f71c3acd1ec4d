"""``simkv validate memory``: predict real start-ups from their configuration alone and compare.

Metrics: what a log prints. Errors are relative, ``(predicted − logged) / logged``; that of an outcome is 0 or 1.
`max_concurrency` takes the blocks from the log and so tests the arithmetic alone, on every row that shows both;
`max_concurrency_end_to_end` comes from the configuration, as all others do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from statistics import fmean, median
from typing import Any

from pydantic import ValidationError

from simkv.errors import ScenarioError
from simkv.kv.budget import MemoryLedger, memory_ledger
from simkv.load.hardware import find_hardware
from simkv.spec.checks import model_faults
from simkv.spec.scenario import Scenario
from simkv.units import GIB
from simkv.validate.startup_concurrency import concurrency_of_logged
from simkv.validate.startup_groups import groups_of
from simkv.validate.startup_rows import (
    StartupRow,
    gpu_of,
    model_of,
    read_startup_rows,
    scenario_of,
    version_of,
)

Value = float | str | None
OUTCOME = "outcome"
METRICS = (
    "weights_gib_per_gpu", "activation_peak_gib", "non_torch_gib", "kv_gib_per_gpu", "kv_tokens",
    "max_concurrency", "max_concurrency_end_to_end", OUTCOME,
)  # fmt: skip
_ABSOLUTE = ("activation_peak_gib", "non_torch_gib")  # small and rounded to 0.01 GiB: errors in GiB
# What stands in where a row says too little: weights need neither the GPU nor, but for two layouts, a version.
_ANY_VERSION, _ANY_GPU = "0.19.0", "h100_sxm"
# Versions whose memory differs; where all of them end alike, at any length if none is stated, an outcome is
# known without the version.
_ERAS = ("0.7.3", "0.11.0", "0.17.0", "0.19.0", "0.32.0")
_SHORT_TOKENS = 2_048
_NO_VERSION = "the version is not stated"
_NEED_NO_GPU = ("weights_gib_per_gpu", "max_concurrency")
_OTHER_PROCESS = ("free memory below", "second instance", "another job")


@dataclass
class RowResult:
    """A row's prediction beside its log.

    skipped   why the row was not predicted as a whole; figures that need neither the GPU nor the version, and
              the concurrency of the logged blocks, which needs no model either, may stand all the same
    left_out  the metrics that were not predicted, each with its reason
    """

    id: str
    groups: tuple[str, ...] = ()
    predicted: dict[str, Value] = field(default_factory=dict)
    logged: dict[str, Value] = field(default_factory=dict)
    error: dict[str, float | None] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    skipped: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "id": self.id,
            "groups": list(self.groups),
            "predicted": self.predicted,
            "logged": self.logged,
            "error": self.error,
            "left_out": self.left_out,
            "skipped": self.skipped,
        }


@dataclass(frozen=True)
class GroupResult:
    """Errors of one metric over the rows of one group; GiB for activation and non-torch, else fractions."""

    group: str
    metric: str
    n: int
    mape: float
    median: float
    p90: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {name: getattr(self, name) for name in ("group", "metric", "n", "mape", "median", "p90")}


def compare_startups(path: Path) -> tuple[list[RowResult], list[GroupResult]]:
    """Predict every row of a table and return errors by row and by group; raise TraceError if it is wrong."""
    results = [compare_row(row) for row in read_startup_rows(path)]
    return results, list(group_results(results))


def compare_row(row: StartupRow) -> RowResult:
    """Predict one start-up from its configuration and compare it with what was logged."""
    version, (hardware, why) = version_of(row), gpu_of(row)
    try:
        scenario = scenario_of(
            row, model_of(row), version or _ANY_VERSION, hardware or find_hardware(_ANY_GPU)
        )
    except ScenarioError as error:
        return _without_ledger(row, error.faults[0].partition(" (give a path")[0])
    except ValidationError as error:
        return _without_ledger(
            row, "; ".join(f"{fault['loc'][-1]}: {fault['msg']}" for fault in error.errors())
        )
    if any(phrase in row.text("error_kind") + row.text("notes") for phrase in _OTHER_PROCESS):
        why = why or "another process held the GPU"
    if version is None:
        why = why or _NO_VERSION
    if faults := model_faults(scenario):
        return _against_rules(row, "; ".join(text for _, text in faults))
    ledger = memory_ledger(scenario)
    concurrency, unknown = concurrency_of_logged(row, ledger)
    result = RowResult(row.id, groups_of(row, scenario), _predicted(ledger), _logged(row, ledger))
    result.predicted["max_concurrency"] = concurrency
    if concurrency is None:
        result.left_out["max_concurrency"] = unknown
    if why:
        result.skipped = why
        result.left_out |= {metric: why for metric in METRICS if metric not in _NEED_NO_GPU}
        result.predicted |= dict.fromkeys(result.left_out)
    if version is None and hardware is not None and why == _NO_VERSION:
        outcomes = {memory_ledger(variant).outcome for variant in _variants(scenario, row)}
        if len(outcomes) == 1:
            result.predicted[OUTCOME] = outcomes.pop()
            del result.left_out[OUTCOME]
    result.error = {metric: _error(metric, result) for metric in METRICS}
    return result


def _without_ledger(row: StartupRow, why: str) -> RowResult:
    """A row of whose model too little is known: the logged concurrency may follow from the logged blocks."""
    result = RowResult(row.id, left_out=dict.fromkeys(METRICS, why), skipped=why)
    concurrency = None
    if row.number("max_concurrency") is not None:
        concurrency, result.left_out["max_concurrency"] = concurrency_of_logged(row, None)
        if concurrency is not None:
            del result.left_out["max_concurrency"]
    result.groups = ("hybrids",) if "hybrid" in row.text("params_note") else ()
    result.predicted = dict.fromkeys(METRICS) | {"max_concurrency": concurrency}
    result.logged = _logged(row)
    result.error = {metric: _error(metric, result) for metric in METRICS}
    return result


def _against_rules(row: StartupRow, why: str) -> RowResult:
    """A layout or an option that vLLM refuses before it loads anything: the outcome is all there is."""
    result = RowResult(row.id, left_out=dict.fromkeys(METRICS, why), logged=_logged(row))
    del result.left_out[OUTCOME]
    result.predicted = dict.fromkeys(METRICS) | {OUTCOME: "refused"}
    result.error = {metric: _error(metric, result) for metric in METRICS}
    return result


def _variants(scenario: Scenario, row: StartupRow) -> Iterator[Scenario]:
    """What a row without a version may have been."""
    lengths = [{}] if row.text("max_model_len") else [{}, {"max_model_len": _SHORT_TOKENS}]
    for era in _ERAS:
        for length in lengths:
            yield scenario.replace(engine={"vllm_version": era, **length})


def _predicted(ledger: MemoryLedger) -> dict[str, Value]:
    """What a log of this ledger would show: figures per GPU are those of the first stage."""
    first = ledger.ranks[0]
    return {
        "weights_gib_per_gpu": first.weights_bytes / GIB,
        "activation_peak_gib": first.activation_bytes / GIB,
        "non_torch_gib": first.non_torch_bytes / GIB,
        "kv_gib_per_gpu": first.kv_bytes / GIB,
        "kv_tokens": float(ledger.kv_tokens),
        "max_concurrency_end_to_end": ledger.max_concurrency,
        OUTCOME: ledger.outcome,
    }


def _logged(row: StartupRow, ledger: MemoryLedger | None = None) -> dict[str, Value]:
    concurrency = row.number("max_concurrency")
    logged: dict[str, Value] = {
        metric: row.number(metric)
        for metric in METRICS
        if metric not in (OUTCOME, "max_concurrency_end_to_end")
    }
    blocks = row.whole("num_gpu_blocks")
    if logged["kv_tokens"] is None and blocks is not None and ledger is not None:
        logged["kv_tokens"] = float(ledger.tokens_of(blocks))
    return logged | {"max_concurrency_end_to_end": concurrency, OUTCOME: row.text(OUTCOME) or None}


def _error(metric: str, result: RowResult) -> float | None:
    predicted, logged = result.predicted[metric], result.logged[metric]
    if predicted is None or logged is None:
        return None
    if isinstance(predicted, str) or isinstance(logged, str):
        return float(predicted != logged)
    if metric == "max_concurrency":  # logs round to two digits
        predicted = round(predicted, 2)
    if metric in _ABSOLUTE:
        return predicted - logged
    if logged == 0:  # no share of nothing, but right if nothing was predicted
        return 0.0 if predicted == 0 else None
    return (predicted - logged) / abs(logged)


def group_results(results: Iterable[RowResult]) -> Iterator[GroupResult]:
    """Yield the errors of every metric over all rows and over each group."""
    errors: dict[tuple[str, str], list[float]] = {}
    for result in results:
        for metric, error in result.error.items():
            for group in ("all", *result.groups):
                if error is not None:
                    errors.setdefault((group, metric), []).append(abs(error))
    for (group, metric), values in sorted(errors.items()):
        values.sort()
        p90 = values[ceil(0.9 * len(values)) - 1]
        yield GroupResult(group, metric, len(values), fmean(values), median(values), p90)


_COLUMNS = (
    ("weights_gib_per_gpu", "weights GiB"), ("activation_peak_gib", "activation GiB"), ("kv_tokens", "KV tokens"),
    ("max_concurrency", "concurrency"), (OUTCOME, "outcome"),
)  # fmt: skip


def format_startups(results: Iterable[RowResult], groups: Iterable[GroupResult]) -> Iterator[str]:
    """Yield the comparison as lines of text: predicted against logged by row, errors by group, what is left out."""
    left_out: dict[str, list[str]] = {}
    yield f"{'row':<8}" + "".join(f"{title + ' (log)':>28}" for _, title in _COLUMNS)
    for result in results:
        if result.skipped:
            left_out.setdefault(result.skipped, []).append(result.id)
        if any(value is not None for value in result.predicted.values()):
            cells = (_cell(result.predicted.get(key), result.logged.get(key)) for key, _ in _COLUMNS)
            yield f"{result.id:<8}" + "".join(f"{cell:>28}" for cell in cells)
    yield ""
    yield f"{'group':<24}{'metric':<32}{'n':>5}{'mean error':>12}{'median':>10}{'p90':>10}"
    for group in groups:
        unit = " GiB" if group.metric in _ABSOLUTE else ""
        errors = (f"{x:.3f}{unit}" if unit else f"{x:.2%}" for x in (group.mape, group.median, group.p90))
        mean, middle, high = errors
        yield f"{group.group:<24}{group.metric:<32}{group.n:>5}{mean:>12}{middle:>10}{high:>10}"
    if left_out:
        yield ""
        yield "Skipped (what needs neither GPU nor version nor model is compared all the same):"
    for reason, ids in left_out.items():
        yield f"  {reason}: {', '.join(ids)}"


def _cell(predicted: Value, logged: Value) -> str:
    return f"{_number(predicted)} ({_number(logged)})" if predicted is not None or logged is not None else ""


def _number(value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if value >= 10_000 else f"{value:.2f}"
