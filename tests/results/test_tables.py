import math

import pytest
from logs import MS, S, empty_log, lively_log, small_log

from simkv.results.log import ITL_COLUMNS, STAGE_COLUMNS, STEP_COLUMNS, RequestRecord
from simkv.results.metrics import summarize
from simkv.results.tables import FRAMES, itls_frame, requests_frame, stages_frame, steps_frame


@pytest.mark.parametrize("name", FRAMES)
def test_an_empty_log_gives_the_same_columns_and_types(name):
    full, empty = FRAMES[name](lively_log(30)), FRAMES[name](empty_log())
    assert len(empty) == 0
    assert empty.dtypes.to_dict() == full.dtypes.to_dict()


def test_means_of_the_frame_are_those_of_the_summary():
    log = lively_log(30)
    frame, summary = requests_frame(log), summarize(log)
    for name in ("ttft", "tpot", "e2el"):
        assert frame[f"{name}_ms"].mean() == pytest.approx(summary[f"mean_{name}_ms"])


def test_requests():
    log = small_log()
    log.requests.append(RequestRecord(3, 100, 5, 700 * MS))
    frame = requests_frame(log)
    assert frame["outcome"].tolist() == ["finished", "finished", "rejected", "unfinished"]
    assert frame["sent_ns"].isna().tolist() == [False, False, False, True]
    assert frame["ttft_ms"].tolist()[:2] == [100.0, 1500.0]
    assert frame["tpot_ms"][0] == 100.0
    assert math.isnan(frame["tpot_ms"][1])  # a single token
    assert frame["e2el_ms"].isna().tolist() == [False, False, True, True]
    assert frame["arrival_s"].tolist() == [0.0, 0.5, 0.6, 0.7]
    assert frame["queue_ms"].tolist()[:2] == [0.0, 0.0]


def test_steps_stages_and_itls():
    log = small_log()
    steps, stages, itls = steps_frame(log), stages_frame(log), itls_frame(log)
    assert set(STEP_COLUMNS) < set(steps.columns)
    assert steps["graph_mode"].tolist() == ["full", "full", "full", "none"]
    assert steps["kv_cache_usage_perc"].tolist() == [0.1, 0.2, 0.2, 1.0]
    assert steps["duration_ms"].tolist() == [100.0, 80.0, 80.0, 1500.0]
    assert set(STAGE_COLUMNS) < set(stages.columns)
    assert stages["duration_ms"].sum() * MS == stages[[f"{p}_ns" for p in ("compute", "memory")]].sum().sum()
    assert set(ITL_COLUMNS) < set(itls.columns)
    assert (itls["gap_ms"] * MS).tolist() == [S / 10, S / 10]
