import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import MS, SCENARIO, empty_log, finished, lively_log, small_log

from simkv.cli import main
from simkv.results.compare import SECTIONS, compare
from simkv.results.keys import meaning
from simkv.results.results import Results

TABLE = """\
Scenario                                       A             B
workload.request_rate                          2             4
workload.seed                                  –             1

Serving                                        A             B      change
finished requests                              2             2           =
failed requests                                1             0    -100.0 %  better
duration (s)                                2.00          2.00           =
input tokens                                 200           200           =
output tokens                                  4             4           =
request throughput (req/s)                  1.00          1.00           =
output throughput (tok/s)                   2.00          2.00           =
total throughput (tok/s)                  102.00        102.00           =
peak output throughput (tok/s)              3.00          3.00           =
peak concurrent requests                       1             1           =

Latency                                        A             B      change
mean TTFT (ms)                            800.00        775.00      -3.1 %  better
median TTFT (ms)                          800.00        775.00      -3.1 %  better
P99 TTFT (ms)                           1,486.00      1,485.50       0.0 %
mean TPOT (ms)                            100.00        125.00     +25.0 %  worse
median TPOT (ms)                          100.00        125.00     +25.0 %  worse
P99 TPOT (ms)                             100.00        125.00     +25.0 %  worse
mean ITL (ms)                             100.00        100.00           =
median ITL (ms)                           100.00        100.00           =
P99 ITL (ms)                              100.00        100.00           =
mean E2EL (ms)                            900.00        900.00           =
median E2EL (ms)                          900.00        900.00           =
P99 E2EL (ms)                           1,488.00      1,488.00           =

Capacity and use                               A             B      change
KV cache of a replica (tokens)             1,600         3,200    +100.0 %  better
requests of max_model_len that fit          2.50          5.00    +100.0 %  better
mean KV cache use (%)                       77.5          77.5           =
peak KV cache use (%)                      100.0         100.0           =
mean running requests                       0.90          0.90           =
mean waiting requests                       0.75          0.75           =
preemptions                                    0             0           =
recomputed tokens                              7             0    -100.0 %  better
prefix cache hits (%)                       25.0          40.0    +15.0 pp  better
mean stage utilization (%)                  44.0          44.0           =

Step time                                      A             B      change
compute (s)                                 0.88          0.88           =
memory (s)                                  0.88          0.88           =
communication (s)                           0.00          0.00           =
host (s)                                    0.00          0.00           =
compute, of busy time (%)                   50.0          50.0           =
memory, of busy time (%)                    50.0          50.0           =
communication, of busy time (%)              0.0           0.0           =
host, of busy time (%)                       0.0           0.0           =
CPU before steps (s)                        0.04          0.04           ="""


def run_a():
    return Results(small_log(), SCENARIO, {"kv_tokens": 1600, "max_concurrency": 2.5})


def run_b():
    log = small_log()
    log.requests = [
        finished(0, 0, 50 * MS, 300 * MS, 3, num_cached_tokens=80),
        finished(1, 500 * MS, 2000 * MS, 2000 * MS, 1),
    ]
    workload = SCENARIO["workload"] | {"request_rate": 4.0, "seed": 1}
    return Results(log, SCENARIO | {"workload": workload}, {"kv_tokens": 3200, "max_concurrency": 5.0})


def rows_of(comparison):
    return {row.key: row for rows in comparison.sections.values() for row in rows}


def test_the_table():
    assert str(run_a().compare(run_b())) == TABLE


def test_a_run_is_equal_to_itself():
    comparison = compare(run_a(), run_a())
    assert comparison.scenario == ()
    assert all(row.a == row.b and row.change == 0 and not row.verdict for row in rows_of(comparison).values())
    assert str(comparison).startswith("The same scenario.\n\nServing ")


def test_fresh_and_loaded_runs_compare_alike(tmp_path):
    fresh = run_a().compare(Results(lively_log(300), SCENARIO))
    a = Results.load(run_a().save(tmp_path / "a"))
    b = Results.load(Results(lively_log(300), SCENARIO).save(tmp_path / "b"))
    assert a.compare(b) == fresh


@pytest.mark.parametrize("key", sorted(key for keys in SECTIONS.values() for key in keys))
def test_every_metric_has_words_and_turns_round_with_the_runs(key):
    label = meaning(key).label
    assert label
    assert "_" not in label.replace("max_model_len", "")
    there, back = (rows_of(c).get(key) for c in (run_a().compare(run_b()), run_b().compare(run_a())))
    if key == "request_goodput":  # there is none without an slo
        assert there is back is None
        return
    opposite = {"better": "worse", "worse": "better", "": ""}
    assert (there.a, there.b, there.verdict) == (back.b, back.a, opposite[back.verdict])


@given(st.floats(0.001, 1e6), st.floats(0.001, 1e6))
def test_less_latency_and_more_throughput_are_better(a, b):
    class Run:
        ledger = None

        def __init__(self, value):
            self.scenario = {}
            self.summary = {"mean_ttft_ms": value, "output_throughput": value}

    rows = rows_of(compare(Run(a), Run(b)))
    verdicts = ("better", "worse") if b < a else ("worse", "better")
    if abs((b - a) / a) < 0.0005:  # reads 0.0 %
        verdicts = ("", "")
    assert (rows["mean_ttft_ms"].verdict, rows["output_throughput"].verdict) == verdicts
    assert rows["mean_ttft_ms"].change == pytest.approx((b - a) / a)


def test_what_a_run_does_not_have_is_not_compared():
    rows = rows_of(run_a().compare(Results(empty_log(), SCENARIO)))
    for key in ("mean_ttft_ms", "p99_itl_ms", "kv_tokens"):
        assert (rows[key].b, rows[key].change, rows[key].verdict) == (None, None, "")
    assert "request_goodput" not in rows


def test_from_nothing_there_is_no_percentage():
    row = rows_of(run_b().compare(run_a()))["num_recomputed_tokens"]
    assert (row.a, row.b, row.change, row.verdict) == (0, 7, None, "worse")


def test_another_model_is_one_line_and_a_count():
    models = [
        {"name": name, "hidden_size": size, "vocab_size": 9} for name, size in (("small", 1), ("big", 2))
    ]
    a, b = (Results(small_log(), SCENARIO | {"model": model}) for model in models)
    comparison = a.compare(b, names=("results/the-first-of-two-very-long-names", "b"))
    assert [difference.path for difference in comparison.scenario] == ["model.name", "model.hidden_size"]
    head = str(comparison).splitlines()[:3]
    assert [line.split() for line in head] == [
        ["Scenario", "…/the-first-of-two-very-long-names", "b"],
        ["model.name", "small", "big"],
        ["…", "and", "1", "more", "of", "model"],
    ]


def test_the_command_prints_the_table_or_json(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_a().save("A")
    run_b().save("B")
    printed = []
    for options in ((), ("--json",)):
        monkeypatch.setattr(sys, "argv", ["simkv", "compare", "A", "B", *options])
        with pytest.raises(SystemExit) as caught:
            main()
        assert not caught.value.code
        printed.append(capsys.readouterr().out)
    assert printed[0] == f"{TABLE}\n"
    answer = json.loads(printed[1])
    assert answer["names"] == ["A", "B"]
    assert answer["scenario"] == {
        "workload.request_rate": {"a": 2.0, "b": 4.0},
        "workload.seed": {"a": None, "b": 1},
    }
    assert answer["metrics"]["prefix_cache_hit_rate"] == {
        "a": 0.25, "b": 0.4, "change": pytest.approx(0.15), "verdict": "better",
    }  # fmt: skip


def test_the_command_wants_two_result_folders(tmp_path, monkeypatch, capsys):
    run_a().save(tmp_path / "a")
    monkeypatch.setattr(sys, "argv", ["simkv", "compare", str(tmp_path / "a"), str(tmp_path / "b")])
    with pytest.raises(SystemExit, match="2"):
        main()
    done = capsys.readouterr()
    assert done.out == ""
    assert done.err.startswith(f"error: {tmp_path / 'b'}: wanted a simkv result folder, got nothing there")
