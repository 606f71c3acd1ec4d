"""Equality with the recordings of the real scheduler is the definition of correct."""

import copy
import json
from pathlib import Path

import pytest

from simkv.errors import TraceError
from simkv.validate.recordings import compare, compare_recording, format_blocks
from tests.validate.compact import read, write

COMMITTED = sorted((Path(__file__).parents[1] / "data" / "recordings").glob("*.txt"))
REFERENCE = sorted((Path(__file__).parents[3] / "shared" / "reference").glob("vllm_scheduler*/*.json"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_replay_equals_committed_recording(path):
    difference = compare(read(path.read_text(encoding="utf-8")))
    assert difference is None, str(difference)


@pytest.mark.skipif(not REFERENCE, reason="the recordings of ../shared/reference are not here")
@pytest.mark.parametrize("path", REFERENCE, ids=[f"{path.parent.name}/{path.stem}" for path in REFERENCE])
def test_replay_equals_recording(path):
    comparison = compare_recording(path)
    assert comparison.first_difference is None, str(comparison.first_difference)


def test_committed_recordings_cover_both_schedulers_and_every_option():
    configs = [read(path.read_text(encoding="utf-8"))["config"] for path in COMMITTED]
    switches = (
        "async_scheduling",
        "enable_prefix_caching",
        "enable_chunked_prefill",
        "scheduler_reserve_full_isl",
    )
    for key in switches:
        assert {config[key] for config in configs} == {False, True}, key
    assert {config["policy"] for config in configs} == {"fcfs", "priority"}
    assert {config["pipeline_parallel_size"] for config in configs} >= {1, 2, 4}
    assert any(config["watermark"] for config in configs)
    assert any(config["long_prefill_token_threshold_adaptive"] for config in configs)


@pytest.mark.parametrize("path", COMMITTED[:4], ids=lambda path: path.stem)
def test_compact_form_is_lossless(path):
    text = path.read_text(encoding="utf-8")
    about = text.splitlines()[0].removeprefix("# ")
    assert write({"vllm_version": "0.32.0", **read(text)}, about) == text


FIELDS = ["scheduled", "blocks", "running", "waiting", "free_blocks", "free_after", "free_queue", "kv_usage"]


@pytest.mark.parametrize("field", FIELDS)
def test_a_changed_field_is_found_where_it_was_changed(field):
    recording = read((COMMITTED[0].parent / "eviction.txt").read_text(encoding="utf-8"))
    changed = copy.deepcopy(recording)
    step = next(step for step in changed["steps"][3:] if field in step)
    step[field] = {"999": "1"} if field == "blocks" else [[999, 1]] if field == "scheduled" else -1
    difference = compare(changed)
    assert (difference.step, difference.field) == (step["step"], field)


def test_a_recording_that_ends_early_or_goes_on_is_not_equal():
    recording = read((COMMITTED[0].parent / "budget.txt").read_text(encoding="utf-8"))
    assert compare({**recording, "steps": recording["steps"][:-1]}) is not None
    longer = [*recording["steps"], {"step": 99, "scheduled": []}]
    assert compare({**recording, "steps": longer}).field == "step"
    assert compare({**recording, "num_preemptions": 5}).field == "num_preemptions"
    assert compare({**recording, "final_free_queue": "1"}).field == "final_free_queue"
    assert compare({**recording, "stuck": [3]}).field == "stuck"


def test_format_blocks_round_trips_any_list():
    assert format_blocks([]) == ""
    assert format_blocks([5]) == "5"
    assert format_blocks([3, 2, 1, 7, 9]) == "3-1,7,9"


def test_faulty_recordings_are_refused(tmp_path):
    path = tmp_path / "recording.json"
    with pytest.raises(TraceError, match="cannot be read"):
        compare_recording(path)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(TraceError, match="wanted a recording in JSON"):
        compare_recording(path)
    recording = read(COMMITTED[0].read_text(encoding="utf-8"))
    del recording["config"]["policy"], recording["config"]["watermark"]
    path.write_text(json.dumps(recording), encoding="utf-8")
    with pytest.raises(TraceError) as caught:
        compare_recording(path)
    assert caught.value.faults == (f"{path}: config.policy: missing", f"{path}: config.watermark: missing")
