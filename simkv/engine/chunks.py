"""The coefficients of dynamic chunks, as an engine would profile them: from three prefill batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simkv.scheduler.chunks import ChunkRule
from simkv.step import GraphMode, PrefillChunk, StepShape

if TYPE_CHECKING:
    from simkv.engine.replica import StepCost


def profile_chunks(cost: StepCost, max_num_batched_tokens: int, max_model_len: int) -> ChunkRule:
    """Return what a token and a pair of tokens cost on the slowest stage.

    From a whole chunk (c = `max_num_batched_tokens`) and half a chunk at the beginning of a prompt, and a whole
    one at the end of the longest: t(c, p) = fixed + token_s·c + pair_s·(c·p + c²/2).
    """
    whole = max(2, min(max_num_batched_tokens, max_model_len))
    half, prefix = whole // 2, max(max_model_len - whole, whole)
    whole_s, half_s = _seconds(cost, whole, 0), _seconds(cost, half, 0)
    pair_s = max(0.0, (_seconds(cost, whole, prefix) - whole_s) / (whole * prefix))
    token_s = (whole_s - half_s - pair_s * (whole**2 - half**2) / 2) / (whole - half)
    return ChunkRule(max(0.0, token_s), pair_s)


def _seconds(cost: StepCost, num_tokens: int, context_len: int) -> float:
    chunk = PrefillChunk(num_tokens, context_len)
    # Launches of a batch without a graph would count as fixed time; they hide behind whole chunks.
    shape = StepShape(
        prefills=(chunk,), num_sampled=1, num_padded_tokens=num_tokens, graph_mode=GraphMode.PIECEWISE
    )
    return max(time.total_s for time in cost.stage_times(shape))
