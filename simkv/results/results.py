"""`Results`: what a run found, fresh or read back from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from simkv.results.bubbles import StageTables
from simkv.results.export import StoredRun, read_folder, write_folder
from simkv.results.log import RunLog
from simkv.results.metrics import Slo, summarize
from simkv.results.table import format_bench_table
from simkv.results.tables import FRAMES, idle_shares, read_stage_tables

if TYPE_CHECKING:
    import pandas as pd

    from simkv.results.compare import Comparison


class Results:
    """The metrics and tables of a run, computed when first asked for.

    log        the run's log; None for results read from a folder, which holds the tables instead
    scenario   the resolved scenario as plain data (what YAML can hold)
    ledger     the memory ledger as plain data, if there is one
    slo        limits per request for goodput: ``ttft_ms``, ``tpot_ms``, ``e2el_ms``
    """

    def __init__(
        self,
        log: RunLog | None,
        scenario: dict[str, Any],
        ledger: dict[str, Any] | None = None,
        slo: Slo | None = None,
    ):
        self.log = log
        self.scenario = scenario
        self.ledger = ledger
        self.slo = slo
        self._stored: StoredRun | None = None

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a result folder without simulating anything; raise ResultsError if it is not whole."""
        stored = read_folder(Path(folder))
        results = cls(None, stored.scenario, stored.ledger, stored.scenario.get("slo"))
        results._stored = stored
        return results

    def save(self, folder: str | Path, overwrite: bool = False) -> Path:
        """Write a result folder and return its path; raise ResultsError if it exists or cannot be written."""
        tables = {name: getattr(self, name) for name in FRAMES}
        return write_folder(
            Path(folder), StoredRun(self.scenario, self.summary, tables, self.ledger), overwrite
        )

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The metrics, keyed as ``vllm bench serve --save-result`` keys them; see `metrics.summarize`."""
        if self._stored is not None:
            return self._stored.summary
        assert self.log is not None
        return (
            summarize(self.log, self.slo)
            | idle_shares(self.bubbles)
            | _client_options(self.scenario.get("workload") or {})
            | {"kernel_tables": _kernel_tables(self.scenario)}
        )

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row a request; see `tables.requests_frame`."""
        return self._frame("requests")

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row a batch; see `tables.steps_frame`."""
        return self._frame("steps")

    @cached_property
    def stages(self) -> pd.DataFrame:
        """One row a batch and pipeline stage; see `tables.stages_frame`."""
        return self._frame("stages")

    @cached_property
    def itls(self) -> pd.DataFrame:
        """Inter-token latencies with their numbers; see `tables.itls_frame`."""
        return self._frame("itls")

    @cached_property
    def waits(self) -> pd.DataFrame:
        """What each engine waited for and why; see `tables.waits_frame`."""
        return self._frame("waits")

    @cached_property
    def bubbles(self) -> pd.DataFrame:
        """Where each stage's wall time went, busy and idle by cause; see `tables.bubbles_frame`."""
        return self._frame("bubbles")

    @cached_property
    def stage_tables(self) -> StageTables:
        """What `bubbles.idle_intervals` reads: the tables of this run as columns of integers."""
        tables = {name: getattr(self, name) for name in ("requests", "steps", "stages", "waits", "bubbles")}
        return read_stage_tables(tables, self.summary["num_stages"], self.summary["num_replicas"])

    def compare(self, other: Results, names: tuple[str, str] = ("A", "B")) -> Comparison:
        """Return what `other` does differently from this run, better or worse; `print` it."""
        from simkv.results.compare import compare

        return compare(self, other, names)

    def _frame(self, name: str) -> pd.DataFrame:
        if self._stored is not None:
            return self._stored.tables[name]
        assert self.log is not None
        return FRAMES[name](self.log)

    def __repr__(self) -> str:
        return format_bench_table(self.summary)


def _client_options(workload: Mapping[str, Any]) -> dict[str, Any]:
    """The options that ``vllm bench serve`` repeats in its result; an infinite rate is the word, as there."""
    request_rate = workload.get("request_rate")
    is_trace = workload.get("dataset_path") is not None
    if workload.get("arrival") == "inf" or (request_rate is None and not is_trace):
        request_rate = "inf"
    return {
        "request_rate": request_rate,
        "burstiness": workload.get("burstiness"),
        "max_concurrency": workload.get("max_concurrency"),
    }


def _kernel_tables(scenario: Mapping[str, Any]) -> str | None:
    """Device, engine and version of the measurements that kernel times come from, None if there are none."""
    hardware = scenario.get("hardware")
    calibration = hardware.get("calibration") if isinstance(hardware, Mapping) else None
    if not calibration:
        return None
    parts = (calibration.get(name) for name in ("device", "engine", "engine_version"))
    return " ".join(part for part in parts if part)
