"""Break one rule at a time and see that the committed tests notice.

    python tests/mutants.py [NAME …]

Each mutant is a copy of the package with one replacement. The tests of the scheduler, the KV cache, the
engine and the committed recordings run on it; a mutant that they pass is reported, and the exit code is 1.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
TESTS = ("tests/validate", "tests/scheduler", "tests/kv", "tests/engine")
NUM_WORKERS = 2


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str


SCHEDULER, WAITING = "simkv/scheduler/scheduler.py", "simkv/scheduler/waiting.py"
CHUNKS, CONFIG, REPLICA = "simkv/scheduler/chunks.py", "simkv/scheduler/config.py", "simkv/engine/replica.py"
REPLAY, CAUSES = "simkv/results/bubbles_replay.py", "simkv/results/bubbles_history.py"
WAITS = "simkv/engine/waits.py"
MANAGER, POOL, PREFIX = "simkv/kv/manager.py", "simkv/kv/block_pool.py", "simkv/kv/prefix.py"

MUTANTS = [
    # Budget and chunks
    Mutant("budget_off_by_one", SCHEDULER, "budget = self.config.max_num_batched_tokens\n",
           "budget = self.config.max_num_batched_tokens + 1\n"),
    Mutant("chunk_cap_on_a_single_request", SCHEDULER, "threshold == 0 or num_requests <= 1", "threshold == 0"),
    Mutant("adaptive_cap_divisor", SCHEDULER, "max_num_batched_tokens // num_requests",
           "max_num_batched_tokens // (num_requests + 1)"),
    Mutant("no_room_kept_for_the_last_token", SCHEDULER, "max_model_len - request.num_computed_tokens - 1,",
           "max_model_len - request.num_computed_tokens,"),
    Mutant("chunks_though_forbidden", SCHEDULER,
           "if not self.config.enable_chunked_prefill:\n                    return",
           "if not self.config.enable_chunked_prefill:\n                    pass"),
    # Preemption
    Mutant("victim_is_the_oldest", SCHEDULER, "return self.running[-1]", "return self.running[0]"),
    Mutant("victim_of_equal_priority_is_the_oldest", SCHEDULER, "(request.priority, request.arrival))",
           "(request.priority, -request.arrival))"),
    Mutant("victim_keeps_the_budget", SCHEDULER, "budget += batch.pop(victim, 0)", "batch.pop(victim, 0)"),
    Mutant("scan_skips_after_a_victim", SCHEDULER, "                    index -= 1", "                    pass"),
    Mutant("scan_goes_on_after_its_own_preemption", SCHEDULER, "                if victim is request:\n                    return budget",
           "                if victim is request:\n                    new_blocks = None\n                    break"),
    Mutant("admits_after_a_preemption", SCHEDULER, "if not plan.preempted:", "if plan is not None:"),
    Mutant("victim_to_the_back_of_the_line", WAITING, "self._requests.appendleft(request)", "self._requests.append(request)"),
    Mutant("victim_does_not_wait_for_its_tokens", SCHEDULER, "if request.num_batches_in_flight == 0", "if request is not None"),
    # Admission
    Mutant("one_seat_too_many", SCHEDULER, "len(self.running) < self.config.max_num_seqs",
           "len(self.running) <= self.config.max_num_seqs"),
    Mutant("full_prompt_not_reserved", SCHEDULER, "reserve_full=self.config.scheduler_reserve_full_isl", "reserve_full=False"),
    Mutant("watermark_even_if_nothing_runs", SCHEDULER, "leave_watermark=bool(self.running)", "leave_watermark=True"),
    Mutant("watermark_ignored", SCHEDULER, "leave_watermark=bool(self.running)", "leave_watermark=False"),
    Mutant("watermark_of_usable_blocks", MANAGER, "int(watermark * pool.num_gpu_blocks)", "int(watermark * pool.num_usable_blocks)"),
    Mutant("hits_in_the_free_queue_are_free_of_charge", MANAGER, " + self.pool.num_free_among(hits)", ""),
    Mutant("priority_by_latest_arrival", "simkv/scheduler/request.py", "(self.priority, self.arrival, self.request_id)",
           "(self.priority, -self.arrival, self.request_id)"),
    Mutant("hits_are_computed_again", SCHEDULER, "request.num_computed_tokens = num_hit_tokens", "request.num_computed_tokens = 0"),
    # Tokens in flight
    Mutant("samples_before_the_prompt_ends", SCHEDULER, "samples = computed >= request.num_tokens + request.num_output_placeholders",
           "samples = computed + 1 >= request.num_tokens + request.num_output_placeholders"),
    Mutant("placeholder_not_asked_for", SCHEDULER,
           "request.num_tokens + request.num_output_placeholders - request.num_computed_tokens,",
           "request.num_tokens - request.num_computed_tokens,"),
    Mutant("placeholder_never_counted_down", SCHEDULER, "                request.num_output_placeholders -= 1", "                pass"),
    Mutant("schedules_beyond_the_last_token", SCHEDULER, "computed_tokens + 2 - placeholders >= length_at_stop",
           "computed_tokens + 1 - placeholders >= length_at_stop"),
    Mutant("pipeline_turns_too_fast", SCHEDULER, "self._num_calls + self.config.pipeline_parallel_size",
           "self._num_calls + 1"),
    Mutant("discarded_token_is_kept", SCHEDULER, "if request.status is RequestStatus.FINISHED or not samples:", "if not samples:"),
    Mutant("one_batch_in_flight_too_few", CONFIG, "return self.pipeline_parallel_size + self.async_scheduling",
           "return self.pipeline_parallel_size"),
    # Ends
    Mutant("one_output_too_many", SCHEDULER, "request.num_output_tokens >= request.max_tokens", "request.num_output_tokens > request.max_tokens"),
    Mutant("runs_beyond_max_model_len", SCHEDULER, "or request.num_tokens >= self.config.max_model_len",
           "or request.num_tokens > self.config.max_model_len"),
    Mutant("stop_token_ignored", SCHEDULER, "            or request.num_output_tokens == request.stop_after\n", ""),
    Mutant("finished_victim_left_in_the_queue", SCHEDULER, "            self.waiting.remove(request)\n        request.status = RequestStatus.FINISHED",
           "            pass\n        request.status = RequestStatus.FINISHED"),
    # Blocks
    Mutant("head_of_a_table_freed_first", POOL, "for block in reversed(table):", "for block in table:"),
    Mutant("blocks_without_a_hash_to_the_back", POOL, "self._free_unhashed.extend(reversed(unhashed_in_walk_order))",
           "self._free_unhashed[:0] = unhashed_in_walk_order"),
    Mutant("cached_blocks_reused_latest_first", POOL, "self._free_hashed.popitem(last=False)", "self._free_hashed.popitem(last=True)"),
    Mutant("shared_block_freed_with_its_first_holder", POOL, "            if holders[block] == 0:\n                if block in hashed:",
           "            if holders[block] >= 0:\n                if block in hashed:"),
    Mutant("hit_stays_in_the_free_queue", POOL, "                del self._free_hashed[block]\n            holders", "                pass\n            holders"),
    Mutant("last_registered_block_is_used", POOL, "isinstance(found, int) else next(iter(found))", "isinstance(found, int) else next(reversed(found))"),
    Mutant("reset_while_blocks_are_held", POOL, "        if self.num_free_blocks != self.num_usable_blocks:\n            return False\n", ""),
    Mutant("no_cap_at_max_model_len", MANAGER, "ceil_div(min(num_tokens, self.max_model_len), self.block_size)",
           "ceil_div(num_tokens, self.block_size)"),
    # Prefix cache
    Mutant("the_last_token_may_hit", MANAGER, "last = (num_tokens - 1) // self.block_size", "last = num_tokens // self.block_size"),
    Mutant("unknown_tokens_are_hashed", MANAGER, "min(num_computed_tokens, request.num_tokens, self.max_model_len)",
           "min(num_computed_tokens, self.max_model_len)"),
    Mutant("blocks_hashed_a_step_late", MANAGER, "if num_tokens < len(table) * self.block_size:", "if num_tokens <= len(table) * self.block_size:"),
    Mutant("generated_blocks_never_hashed_late", SCHEDULER, "                self._cache_late(request)", "                pass"),
    Mutant("late_hash_of_unknown_tokens", SCHEDULER, "request.num_computed_tokens - request.num_output_placeholders)\n\n    def _is_at_its_end",
           "request.num_computed_tokens)\n\n    def _is_at_its_end"),
    Mutant("prefix_before_a_run_ignored", PREFIX, "self._names.setdefault((previous, num_previous_tokens, start)",
           "self._names.setdefault((0, num_previous_tokens, start)"),
    # Chunks of equal time
    Mutant("chunks_share_no_time", CHUNKS, "self._left_s -= self._rule.seconds(num_tokens, context_len)", "pass"),
    Mutant("prefix_costs_nothing", CHUNKS, "self.token_s + self.pair_s * context_len\n", "self.token_s\n"),
    Mutant("time_left_over_tempts_to_slivers", CHUNKS, "if num_steps == 0 and not self._is_first:", "if num_steps < 0:"),
    # The broadcast of sampled tokens
    Mutant("chunks_wait_for_no_broadcast", REPLICA, 'return self._broadcast_wait == "always"', "return False"),
    Mutant("every_batch_is_broadcast", REPLICA, "return any(samples for _, _, samples in batch.plan.scheduled)", "return True"),
    # One for each cause of idle time: it is put down to another
    Mutant("no_transfer", REPLAY, "arrival[TRANSFER] += start_ns", "arrival[STAGE_IMBALANCE] += start_ns"),
    Mutant("no_stage_imbalance", REPLAY, "history[STAGE_IMBALANCE] += stage_end_ns", "history[CHUNK_IMBALANCE] += stage_end_ns"),
    Mutant("no_chunk_imbalance", REPLAY, "history[CHUNK_IMBALANCE] += shortest_ns", "history[STAGE_IMBALANCE] += shortest_ns"),
    Mutant("no_host", REPLAY, "history[HOST] += ready_ns - last.end_ns", "history[TRANSFER] += ready_ns - last.end_ns"),
    Mutant("cpu_blamed_for_all_that_it_overlaps", REPLAY, "if delay.history is None:", "if delay.history is None or delay is delays[0]:"),
    Mutant("no_token_dependency", CAUSES, "WaitKind.TOKEN_DEPENDENCY: TOKEN_DEPENDENCY", "WaitKind.TOKEN_DEPENDENCY: 5"),
    Mutant("no_too_few_requests", CAUSES, "WaitKind.TOO_FEW_REQUESTS: 5", "WaitKind.TOO_FEW_REQUESTS: 4"),
    Mutant("no_max_num_seqs", CAUSES, "WaitKind.MAX_NUM_SEQS: 6", "WaitKind.MAX_NUM_SEQS: 7"),
    Mutant("no_kv_limited", CAUSES, "WaitKind.KV_LIMITED: 7", "WaitKind.KV_LIMITED: 6"),
    Mutant("no_fill_drain", CAUSES, "WaitKind.DRAIN: FILL_DRAIN", "WaitKind.DRAIN: NO_WORK"),
    Mutant("no_fill", REPLAY, "Span(starts_ns[stage], ends_ns[stage], FILL_DRAIN)", "Span(starts_ns[stage], ends_ns[stage], NO_WORK)"),
    Mutant("no_no_work", CAUSES, "WaitKind.NO_WORK: NO_WORK", "WaitKind.NO_WORK: FILL_DRAIN"),
    Mutant("shortages_share_with_the_cpu", CAUSES, "if starved_by in KEPT_OUT:", "if starved_by is HOST:"),
    Mutant("shortages_take_transfers", CAUSES, "blamed[TRANSFER] = difference_ns[TRANSFER]", "blamed[TRANSFER] = 0"),
    Mutant("late_tokens_take_unlike_batches", CAUSES, "moved_ns = round(moved_ns * likeness)", "pass"),
    Mutant("none_is_late", WAITS, "if late_ns:\n", "if not late_ns:\n"),
    Mutant("late_for_ever", WAITS, "__getitem__)] -= duration_ns", "__getitem__)] -= 0"),
    Mutant("late_since_the_beginning", WAITS, "self._then_ns[request.request_id] = self._kept_out_ns.copy()",
           "self._then_ns[request.request_id] = Counter()"),
    Mutant("preempted_are_not_late", REPLICA, "for request in plan.preempted:\n            self._lateness",
           "for request in ():\n            self._lateness"),
    Mutant("one_more_batch_than_stages_fills_the_pipeline", REPLICA,
           "is_full = num_in_flight >= self.scheduler.config.pipeline_parallel_size",
           "is_full = num_in_flight >= self.scheduler.config.max_concurrent_batches"),
    Mutant("length_before_a_run_ignored", PREFIX, "self._names.setdefault((previous, num_previous_tokens, start)",
           "self._names.setdefault((previous, 0, start)"),
]  # fmt: skip


def _nearest_first(mutant: Mutant | None) -> list[str]:
    """The folders of tests, from the one most likely to notice a mutant on: most then end early."""
    package = mutant.file.split("/")[1] if mutant is not None else ""
    home = "tests/" + {"results": "engine"}.get(package, package)
    return sorted(TESTS, key=lambda folder: folder != home)


def survives(mutant: Mutant | None) -> str | None:
    """Return None if the tests notice the mutant, else what happened. No mutant: the tests must pass."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "repository"
        keep_out = shutil.ignore_patterns("__pycache__", ".*", "results", "data/models")
        for part in ("simkv", "tests", "hardware_profiles", "scenarios"):
            shutil.copytree(ROOT / part, copy / part, ignore=keep_out if part == "tests" else None)
        shutil.copy(ROOT / "pyproject.toml", copy)
        if mutant is not None:
            path = copy / mutant.file
            text = path.read_text(encoding="utf-8")
            if text.count(mutant.old) != 1:
                return f"its text stands {text.count(mutant.old)} times in {mutant.file}, wanted once"
            path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *_nearest_first(mutant)],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
    if mutant is None:
        return None if done.returncode == 0 else done.stdout[-2000:]
    return (
        None if done.returncode == 1 else f"pytest's exit code is {done.returncode}: the tests do not notice"
    )


def main(names: list[str]) -> int:
    problem = survives(None)
    if problem:
        print(f"the tests fail without any mutant:\n{problem}")
        return 1
    mutants = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    with ThreadPoolExecutor(NUM_WORKERS) as pool:
        problems = []
        for mutant, problem in zip(mutants, pool.map(survives, mutants), strict=True):
            problems.append(problem)
            verdict = "caught" if problem is None else "SURVIVES"
            print(f"{verdict:<9} {mutant.name}{'' if problem is None else ': ' + problem}", flush=True)
    num_caught = problems.count(None)
    print(f"{num_caught} of {len(mutants)} mutants caught")
    return 0 if num_caught == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
