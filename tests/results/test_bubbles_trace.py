"""The trace is valid Chrome JSON: slices nest, tracks are named, every request has its phases and arrows."""

import json
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from logs import MS, SCENARIO, empty_log, lively_log, small_log

from simkv.errors import ResultsError
from simkv.results.results import Results
from simkv.results.trace import trace_events, write_trace
from tests.engine.worlds import UnitCost, requests_of, simulation_of


def real_log():
    requests = requests_of([(0, 40, 12), (9_000, 60, 20), (300_000, 20, 5)])
    cost = UnitCost(3, host_s=0.4e-6, transfer_s=0.3e-6, slow={1: 1.2})
    return simulation_of(requests, num_gpu_blocks=40, pp=3, dp=2, cost=cost, async_scheduling=True).run()


LOGS = {"empty": empty_log, "small": small_log, "lively": lambda: lively_log(200), "real": real_log}


@pytest.fixture(params=LOGS)
def events(request, tmp_path):
    path = write_trace(Results(LOGS[request.param](), SCENARIO), tmp_path / "trace.json")
    trace = json.loads(path.read_text(encoding="utf-8"))
    assert set(trace) == {"displayTimeUnit", "traceEvents"}
    return trace["traceEvents"]


def test_every_event_has_what_its_phase_needs(events):
    needed = {
        "M": {"name", "pid", "args"}, "X": {"name", "pid", "tid", "ts", "dur"}, "C": {"name", "pid", "ts", "args"},
        "b": {"name", "cat", "id", "pid", "ts"}, "e": {"name", "cat", "id", "pid", "ts"},
        "s": {"name", "cat", "id", "pid", "tid", "ts"}, "t": {"name", "cat", "id", "pid", "tid", "ts"},
        "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
    }  # fmt: skip
    for event in events:
        assert needed[event["ph"]] <= set(event)
        assert event.get("dur", 0) >= 0


def test_slices_on_a_track_nest_or_follow_each_other(events):
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((round(1000 * event["ts"]), round(1000 * event["dur"])))
    for slices in tracks.values():
        open_until = []
        for start_ns, duration_ns in sorted(slices, key=lambda row: (row[0], -row[1])):
            while open_until and open_until[-1] <= start_ns:
                open_until.pop()
            assert not open_until or start_ns + duration_ns <= open_until[-1]
            open_until.append(start_ns + duration_ns)


def test_batches_and_idle_times_fill_every_stage():
    results = Results(real_log(), SCENARIO)
    tracks = defaultdict(list)
    for event in trace_events(results):
        if event["ph"] == "X" and ("step" in event.get("args", {}) or event["name"].startswith("idle")):
            start_ns = round(1000 * event["ts"])
            tracks[event["pid"], event["tid"]].append((start_ns, start_ns + round(1000 * event["dur"])))
    assert len(tracks) == 6
    for slices in tracks.values():
        slices.sort()
        assert all(end_ns == start_ns for (_, end_ns), (start_ns, _) in pairwise(slices))
        assert slices[0][0] == 0
        assert slices[-1][1] == results.log.end_ns


def test_each_request_has_phases_and_an_arrow_inside_slices():
    events = list(trace_events(Results(real_log(), SCENARIO)))
    phases = Counter((event["id"], event["name"]) for event in events if event["ph"] == "b")
    assert phases == Counter((i, name) for i in range(3) for name in ("queue", "prefill", "decode"))
    arrows = [event for event in events if event["ph"] in "stf"]
    assert Counter(event["ph"] for event in arrows) == {"s": 3, "t": 3, "f": 3}
    batches = [event for event in events if event["ph"] == "X" and "step" in event.get("args", {})]
    for arrow in arrows:
        assert any(
            batch["pid"] == arrow["pid"]
            and batch["tid"] == arrow["tid"]
            and batch["ts"] <= arrow["ts"] < batch["ts"] + batch["dur"]
            for batch in batches
        )


# Rules of the Chrome trace event format, for which no viewer is at hand here


def test_times_are_finite_numbers_in_microseconds_and_ids_are_integers(events):
    for event in events:
        assert isinstance(event["pid"], int)
        for key in ("ts", "dur"):
            value = event.get(key, 0)
            assert isinstance(value, int | float)
            assert 0 <= value < float("inf")
        if event["ph"] not in "MC":
            assert isinstance(event["tid"], int)
        if event["ph"] in "best" or event["ph"] == "f":
            assert isinstance(event["id"], int)
            assert event["cat"]


def test_begun_phases_end_in_order(events):
    """Every b is closed by one e of the same category, id and name, later or at once; nothing is left open."""
    last_ts, is_open = defaultdict(float), Counter()
    for event in events:
        if event["ph"] in ("b", "e"):
            key = event["cat"], event["id"]
            assert event["ts"] >= last_ts[key]
            last_ts[key] = event["ts"]
            is_open[*key, event["name"]] += 1 if event["ph"] == "b" else -1
            assert set(is_open.values()) <= {0, 1}
    assert not +is_open
    assert not any(event["ph"] in ("B", "E") for event in events)  # slices are all complete (X)


def test_arrows_start_once_and_end_once_in_order_of_time(events):
    arrows = defaultdict(list)
    for event in events:
        if event["ph"] in ("s", "t", "f"):
            arrows[event["cat"], event["name"], event["id"]].append(event)
    for steps in arrows.values():
        phases = "".join(event["ph"] for event in steps)
        assert phases in ("sf", "stf")
        times = [event["ts"] for event in steps]
        assert times == sorted(times)
        assert len({event["pid"] for event in steps}) == 1  # a request stays on its replica


def test_counters_go_forward_in_time_with_numbers_of_one_kind(events):
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            tracks[event["pid"], event["name"]].append(event)
    for track in tracks.values():
        times = [event["ts"] for event in track]
        assert times == sorted(times)
        assert len({tuple(event["args"]) for event in track}) == 1
        assert all(isinstance(value, int | float) for event in track for value in event["args"].values())


def counters_of(results):
    """Each replica's counters: {name: [(ts, value)]}."""
    found = defaultdict(lambda: defaultdict(list))
    for event in trace_events(results):
        if event["ph"] == "C":
            for name, value in event["args"].items():
                found[event["pid"] - 1][name].append((round(1000 * event["ts"]), value))
    return found


def test_counters_show_that_requests_finish_and_end_at_zero():
    results = Results(real_log(), SCENARIO)
    for replica, counters in counters_of(results).items():
        requests = results.requests[results.requests["replica"] == replica]
        assert set(requests["finished_ns"]) <= {ts for ts, _ in counters["running"]}
        assert [series[-1][1] for series in counters.values()] == [0, 0, 0]
        assert max(value for _, value in counters["percent"]) > 0
        for time_ns, running in counters["running"]:
            if time_ns in set(requests["finished_ns"]):
                assert running <= (requests["finished_ns"] > time_ns).sum()


def test_a_stopped_run_ends_with_what_was_held():
    log = small_log()
    log.requests = log.requests[:1]
    log.is_complete = False
    counters = counters_of(Results(log, SCENARIO))[0]
    assert counters["running"] == [(0, 1), (100 * MS, 1), (200 * MS, 1), (300 * MS, 0), (500 * MS, 1)]
    assert counters["waiting"][-1] == (500 * MS, 1)
    assert counters["percent"] == [
        (0, 10.0), (100 * MS, 20.0), (200 * MS, 20.0), (300 * MS, 0.0), (500 * MS, 100.0),
    ]  # fmt: skip
    log.is_complete = True
    counters = counters_of(Results(log, SCENARIO))[0]
    assert [series[-1] for series in counters.values()] == [(2000 * MS, 0)] * 3


def test_tracks_are_named(events):
    named = {
        (event["pid"], event["tid"])
        for event in events
        if event["ph"] == "M" and event["name"] != "process_name"
    }
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"} <= named


def test_a_loaded_run_gives_the_same_trace(tmp_path):
    results = Results(real_log(), SCENARIO)
    loaded = Results.load(results.save(tmp_path / "run"))
    first, second = (write_trace(run, tmp_path / f"{i}.json") for i, run in enumerate((results, loaded)))
    assert first.read_bytes() == second.read_bytes()


def test_a_file_that_cannot_be_written_is_a_plain_error(tmp_path):
    with pytest.raises(ResultsError, match="wanted a file that can be written"):
        write_trace(Results(small_log(), SCENARIO), tmp_path / "nowhere" / "trace.json")
    (tmp_path / "taken").mkdir()
    with pytest.raises(ResultsError, match="wanted a file that can be written"):
        write_trace(Results(small_log(), SCENARIO), tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
