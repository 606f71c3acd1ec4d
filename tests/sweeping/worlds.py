"""A scenario that takes milliseconds, and sweeps of it."""

from __future__ import annotations

from pathlib import Path

TINY = """\
# Do five requests pass?
model: llama-3.1-8b
hardware: h100_sxm
engine: {max_model_len: 4096}
workload: {request_rate: 5, num_prompts: 5, prompt_len: 200, output_len: 4}
slo: {ttft_ms: 1000}
"""


def write_tiny(folder: Path, more: str = "") -> Path:
    path = folder / "tiny.yaml"
    path.write_text(TINY + more, encoding="utf-8")
    return path


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder and its bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
