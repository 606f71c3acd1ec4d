"""Rows of real start-ups: from the text of a table to scenarios, with nothing guessed.

A row is a vLLM server as its log states it: model, version, GPU, layout and options. What a row leaves blank
has vLLM's default. A GPU, a version or a model that the row does not state cannot be defaulted.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path

from simkv.errors import ScenarioError, TraceError
from simkv.load.hardware import find_hardware
from simkv.load.model import find_model
from simkv.load.startup_gpus import profile_of_gpu
from simkv.spec.engine import EngineSpec, parse_version
from simkv.spec.hardware import HardwareSpec
from simkv.spec.model import ModelSpec, QuantizationSpec
from simkv.spec.parallel import ParallelSpec
from simkv.spec.scenario import Scenario
from simkv.units import GIB

REQUIRED_COLUMNS = ("id", "model")
NUMBERS = (
    "gpu_mem_gib", "tp", "pp", "block_size", "max_model_len", "gpu_memory_utilization",
    "max_num_batched_tokens", "max_num_seqs", "weights_gib_per_gpu", "non_torch_gib", "activation_peak_gib",
    "kv_gib_per_gpu", "num_gpu_blocks", "kv_tokens", "max_concurrency",
)  # fmt: skip
COUNTS = ("tp", "pp", "block_size", "max_model_len", "max_num_batched_tokens", "max_num_seqs")
_SIZES = ("gpu_mem_gib", "gpu_memory_utilization")
_SHARES_MEMORY = re.compile(r"GB10|DGX Spark", re.I)  # with the host: there is no driver's figure
# How checkpoints are quantised where a row says so and the shipped model does not.
_ONLINE_METHODS = {"fp8": QuantizationSpec(method="fp8")}
_DTYPES = {"half": "float16", "float": "float32"}  # as vLLM takes them
DEFAULT_BLOCK_SIZE = 16
# A local copy of a public model, named with a remark that may say how it was quantised.
_LOCAL_COPY = re.compile(r"(.+?)(?: fine-tune)? \(local ([^()]*)\)")
_SCHEMES = ("W4A16", "W8A8", "FP8")  # llm-compressor's, whose public copies have these as suffixes
_V0 = "0.7.3"  # of the versions with the V0 engine the last


@dataclass(frozen=True)
class StartupRow:
    """One line of the table; `number` reads a figure, None where the log did not show it."""

    fields: Mapping[str, str]
    line: int

    @property
    def id(self) -> str:
        """The row's name."""
        return self.fields["id"]

    def text(self, column: str) -> str:
        """A cell without blanks around it; empty if the table lacks the column."""
        return (self.fields.get(column) or "").strip()

    def number(self, column: str) -> float | None:
        """A figure; raise TraceError if the cell holds something else."""
        text = self.text(column)
        if not text:
            return None
        try:
            value = float(text.replace(",", ""))
        except ValueError:
            value = nan
        wanted = "a number"
        if column in COUNTS:
            wanted = "a whole number from 1"
        elif column in _SIZES:
            wanted = "a number above 0"
        if not isfinite(value) or (column in COUNTS and not value.is_integer()):
            raise TraceError(f"line {self.line}: {column}: wanted {wanted}, got {text!r}")
        if column in (*COUNTS, *_SIZES) and value <= 0:
            raise TraceError(f"line {self.line}: {column}: wanted {wanted}, got {text!r}")
        return value

    def whole(self, column: str) -> int | None:
        """A count."""
        value = self.number(column)
        return None if value is None else round(value)


def read_startup_rows(path: Path) -> list[StartupRow]:
    """Read a table of start-ups; raise TraceError with every fault, each with its line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:  # spreadsheets put a mark in front
            reader = csv.DictReader(file)
            reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
            rows = [StartupRow(fields, reader.line_num) for fields in reader]
            columns = reader.fieldnames or ()
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: wanted a CSV table in UTF-8, got {error}") from None
    missing = [column for column in REQUIRED_COLUMNS if column not in columns]
    if missing:
        raise TraceError(f"{path}: wanted the columns {', '.join(REQUIRED_COLUMNS)}, got no {missing[0]}")
    faults = []
    for row in rows:
        for column in NUMBERS:
            try:
                row.number(column)
            except TraceError as error:
                faults += [f"{path}: {fault}" for fault in error.faults]
    if faults:
        raise TraceError(faults)
    return rows


def version_of(row: StartupRow) -> str | None:
    """The vLLM version: of its column, else one that the notes name; "V0" stands for the last of that engine."""
    in_notes: list[str] = re.findall(r"\bv0\.\d+\.\d+", row.text("notes"))
    for text in (row.text("vllm_version"), *in_notes):
        try:
            parse_version(text)
        except ValueError:
            continue
        return text
    return _V0 if re.search(r"\bV0\b", row.text("notes")) else None


def gpu_of(row: StartupRow) -> tuple[HardwareSpec | None, str]:
    """The GPU with the driver's memory, or why it is not known."""
    name, memory_gib = row.text("gpu"), row.number("gpu_mem_gib")
    if not name and memory_gib is None:
        return None, "the log does not name the GPU"
    if " + " in name:
        return None, "two kinds of GPU in one replica"
    if memory_gib is None and re.search(r"\((README|repo)\)", name):
        return None, "the GPU is named by the repository, not by the log"
    if _SHARES_MEMORY.search(name):
        return None, "the GPU shares its memory with the host"
    profile = profile_of_gpu(name)
    if memory_gib is None:
        return (find_hardware(profile), "") if profile else (None, f"no memory size is known for {name!r}")
    gpu = {"name": name or "GPU", "memory_bytes": {"value": memory_gib * GIB, "source": f"row {row.id}"}}
    return find_hardware(profile or "h100_sxm").replace(gpu=gpu), ""


def model_of(row: StartupRow) -> ModelSpec:
    """The shipped model of that name in the row's dtype and quantisation; raise ScenarioError if there is none.

    A remark "(local …)" behind a name says that a copy of that model was served, or a fine-tune of it, which has
    its dimensions; other remarks tell what is not known of the model.
    """
    name = row.text("model")
    if match := _LOCAL_COPY.fullmatch(name):
        name = "-".join([match[1], *(scheme for scheme in _SCHEMES if scheme in match[2].split())])
    model = find_model(name)
    dtype, quantization = row.text("dtype").removeprefix("torch."), row.text("quantization")
    dtype = _DTYPES.get(dtype, dtype)
    if dtype in ("bfloat16", "float16", "float32"):
        model = model.replace(dtype=dtype)
    if model.quantization is None and quantization.lower() not in ("", "none", "auto"):
        if quantization not in _ONLINE_METHODS:
            raise ScenarioError(f"how {row.text('model')} is quantised in {quantization!r} is not shipped")
        model = model.replace(quantization=_ONLINE_METHODS[quantization])
    return model


def scenario_of(row: StartupRow, model: ModelSpec, version: str, hardware: HardwareSpec) -> Scenario:
    """The scenario of a row; blanks have the version's defaults."""
    engine = {
        "max_model_len": row.whole("max_model_len"),
        "max_num_seqs": row.whole("max_num_seqs"),
        "max_num_batched_tokens": row.whole("max_num_batched_tokens"),
        "gpu_memory_utilization": row.number("gpu_memory_utilization"),
    }
    return Scenario(
        name=row.id,
        model=model,
        hardware=hardware,
        parallel=ParallelSpec(
            tensor_parallel_size=row.whole("tp") or 1, pipeline_parallel_size=row.whole("pp") or 1
        ),
        engine=EngineSpec(
            vllm_version=version,
            kv_cache_dtype=row.text("kv_cache_dtype") or "auto",  # type: ignore[arg-type]
            block_size=row.whole("block_size") or DEFAULT_BLOCK_SIZE,
            **{name: value for name, value in engine.items() if value is not None},  # type: ignore[arg-type]
        ),
    )
