import pytest
from logs import LEDGER, SCENARIO, empty_log, lively_log, small_log
from pandas.testing import assert_frame_equal

from simkv.results.results import Results
from simkv.results.table import format_bench_table


@pytest.mark.parametrize("make", [empty_log, small_log, lively_log])
def test_a_folder_gives_back_what_was_saved(make, tmp_path):
    results = Results(make(), SCENARIO, LEDGER, SCENARIO["slo"])
    loaded = Results.load(results.save(tmp_path / "run"))
    assert loaded.log is None
    assert loaded.scenario == SCENARIO
    assert loaded.ledger == LEDGER
    assert loaded.slo == SCENARIO["slo"]
    assert loaded.summary == results.summary
    assert list(loaded.summary) == list(results.summary)
    for name in ("requests", "steps", "stages", "itls"):
        assert_frame_equal(getattr(loaded, name), getattr(results, name))


def test_it_is_computed_once():
    results = Results(small_log(), SCENARIO)
    assert results.summary is results.summary
    assert results.steps is results.steps


def test_it_shows_itself_as_the_bench_table():
    results = Results(small_log(), SCENARIO)
    assert repr(results) == format_bench_table(results.summary)
    assert "Request rate configured (RPS):           2.00" in repr(results)


@pytest.mark.parametrize(
    ("workload", "request_rate"),
    [
        (None, "inf"),
        ({"request_rate": None}, "inf"),
        ({"request_rate": 4.0}, 4.0),
        ({"request_rate": 4.0, "arrival": "inf"}, "inf"),
        ({"dataset_path": "trace.csv"}, None),
    ],
)
def test_the_request_rate_is_said_as_vllm_says_it(workload, request_rate):
    assert Results(small_log(), {"workload": workload}).summary["request_rate"] == request_rate
