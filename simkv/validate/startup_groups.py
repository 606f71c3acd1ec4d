"""Which groups a start-up belongs to, so that an error in one kind does not hide behind many of another."""

from __future__ import annotations

import zlib

from simkv.spec.scenario import Scenario
from simkv.validate.startup_rows import StartupRow

# Half of the public rows are one campaign on one node type, in one setting (8,192 tokens, 1,024 sequences).
CAMPAIGN = "llm-d-planner#205"
CAMPAIGN_SIZES = (8_192, 1_024)
CAMPAIGN_VERSIONS = ((0, 17), (0, 18), (0, 19))
FITTED_TENTHS = 7


def is_fitted(row_id: str) -> bool:
    """True for the rows that the ledger's constants were fitted on: 7 in 10, by a hash of their names."""
    return zlib.crc32(row_id.encode()) % 10 >= 10 - FITTED_TENTHS


def groups_of(row: StartupRow, scenario: Scenario) -> tuple[str, ...]:
    """Return the groups of a row; it may be in several."""
    model, parallel, engine = scenario.model, scenario.parallel, scenario.resolved_engine
    on_h100 = "H100" in row.text("gpu")
    is_dense = not (model.is_moe or model.is_mla or model.is_hybrid)
    sizes = (engine.max_num_batched_tokens, engine.max_num_seqs)
    # a table without sources: known by its setting
    in_campaign = CAMPAIGN in row.text("source") or (
        not row.text("source") and on_h100 and sizes == CAMPAIGN_SIZES
    )
    belongs = {
        "dense campaign": in_campaign and is_dense and engine.version in CAMPAIGN_VERSIONS,
        "other versions": engine.version not in CAMPAIGN_VERSIONS,
        "pipeline parallel": parallel.pipeline_parallel_size > 1,
        "TP above the KV heads": parallel.tensor_parallel_size > model.num_key_value_heads
        and not model.is_mla,
        "MLA and MoE": model.is_moe or model.is_mla,
        "hybrids": model.is_hybrid,
        "other settings": sizes != CAMPAIGN_SIZES,
        "other GPUs": not on_h100,
    }
    names = [name for name, holds in belongs.items() if holds]
    return (*names, "fitted rows" if is_fitted(row.id) else "rows not fitted")
