"""Logs of runs that never ran, small and legible, and one that looks real."""

import random

from simkv.results.log import RequestOutcome, RequestRecord, RunLog
from simkv.step import GraphMode, PrefillChunk, StepPlan, StepShape, StepTime

MS = 1_000_000
S = 1000 * MS
SCENARIO = {
    "name": "hand-made",
    "workload": {"arrival": "poisson", "request_rate": 2.0, "burstiness": 1.0, "max_concurrency": 8},
    "slo": {"ttft_ms": 200.0, "tpot_ms": None},
}
LEDGER = {"num_gpu_blocks": 101, "terms": [{"name": "weights", "bytes": 17}]}


def finished(
    request_id, sent_ns, first_token_ns, finished_ns, num_output_tokens, *, num_prompt_tokens=100, **more
):
    return RequestRecord(
        request_id,
        num_prompt_tokens,
        num_output_tokens,
        arrival_ns=sent_ns,
        sent_ns=sent_ns,
        first_scheduled_ns=sent_ns,
        first_token_ns=first_token_ns,
        last_token_ns=finished_ns,
        finished_ns=finished_ns,
        num_output_tokens=num_output_tokens,
        outcome=RequestOutcome.FINISHED,
        **more,
    )


def add_step(
    log, start_ns, end_ns, *, replica=0, running=1, waiting=0, free=100, host_ns=0, mode=GraphMode.FULL
):
    """One batch, as long on each stage and one stage after the other: half compute, half memory."""
    plan = StepPlan(
        num_running=running,
        num_waiting=waiting,
        num_free_blocks=free,
        shape=StepShape(running, 1000, 1000, (PrefillChunk(5, 0),), running, 8, mode),
    )
    on_stage_ns = (end_ns - start_ns) // log.num_stages
    step = log.step(replica, start_ns - host_ns, host_ns, start_ns, end_ns, plan)
    for stage in range(log.num_stages):
        half_s = on_stage_ns / 2 / S
        time = StepTime(half_s, half_s, measured_input_s=half_s, assumed_input_s=half_s)
        log.stage(step, stage, start_ns + stage * on_stage_ns, start_ns + (stage + 1) * on_stage_ns, time)
    return step


def small_log():
    """Three requests: one of three tokens, one of a single token, one refused; two stages; 2 s."""
    log = RunLog(num_gpu_blocks=101, num_stages=2)
    log.requests = [
        finished(0, 0, 100 * MS, 300 * MS, 3, num_cached_tokens=50),
        finished(1, 500 * MS, 2000 * MS, 2000 * MS, 1, num_preemptions=1, num_recomputed_tokens=7),
        RequestRecord(2, 9000, 10, 600 * MS, sent_ns=600 * MS, outcome=RequestOutcome.REJECTED),
    ]
    add_step(log, 0, 100 * MS, running=1, waiting=0, free=90)
    for end_ms in (200, 300):
        step = add_step(log, (end_ms - 80) * MS, end_ms * MS, host_ns=20 * MS, running=1, free=80)
        log.itls.append(step, 100 * MS, 1)
    add_step(log, 500 * MS, 2000 * MS, running=1, waiting=1, free=0, mode=GraphMode.NONE)
    log.end_ns = 2000 * MS
    return log


def empty_log():
    return RunLog(num_gpu_blocks=101, num_stages=1)


def lively_log(num_steps=3000, num_stages=4, num_replicas=2, seed=0):
    """Looks like a busy server: waves of requests, prefill now and then, stages of unlike speed."""
    rng = random.Random(seed)
    log = RunLog(2001, num_stages, num_replicas)
    for replica in range(num_replicas):
        free_at = [0] * num_stages
        now = running = waiting = 0
        for number in range(num_steps):
            wave = 0.5 + 0.5 * (number // (num_steps // 6) % 2)
            running = max(1, min(64, running + rng.randint(-2, 2 + int(2 * wave))))
            waiting = max(0, waiting + rng.randint(-3, 3) if running == 64 else waiting - 2)
            if rng.random() < 0.001:
                now = max(free_at) + 400 * MS
            prefill = rng.random() < 0.15
            plan = StepPlan(
                num_running=running,
                num_waiting=waiting,
                num_free_blocks=2000 - 30 * running,
                shape=StepShape(running, 900 * running, 1000, (PrefillChunk(512, 0),) * prefill, running, 64),
            )
            scheduled_ns, host_ns = now, 900_000
            arrived = scheduled_ns + host_ns
            runs = []
            for stage in range(num_stages):
                compute_s = (0.030 if prefill else 0.002) * (1.3 if stage == 1 else 1.0)
                memory_s = 0.004 + 0.0001 * running
                time = StepTime(compute_s, memory_s, 0.001, 0.0005, compute_s, 0.0, 0.0, memory_s + 0.0015)
                start = max(arrived, free_at[stage])
                free_at[stage] = arrived = start + round(time.total_s * S)
                runs.append((start, free_at[stage], time))
            step = log.step(replica, scheduled_ns, host_ns, runs[0][0], runs[-1][1], plan)
            for stage, (start, end, time) in enumerate(runs):
                log.stage(step, stage, start, end, time)
            log.itls.append(step, (60 if prefill else 25) * MS + rng.randint(0, 5 * MS), running)
            now = max(now + host_ns, runs[0][1] - host_ns)
        log.end_ns = max(log.end_ns, *free_at)
    for request_id in range(400):
        sent = rng.randint(0, log.end_ns * 3 // 4) if request_id else 0
        first = sent + round(rng.lognormvariate(0, 0.9) * 300 * MS)
        tokens = rng.randint(1, 200)
        done = first + (tokens - 1) * rng.randint(24 * MS, 40 * MS)
        log.requests.append(
            finished(request_id, sent, first, done, tokens, num_prompt_tokens=rng.randint(100, 60000))
        )
    return log
