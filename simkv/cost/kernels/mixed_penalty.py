"""Compact penalties of batches that are not uniform, for GPUs without measurements of them.

**Chunks beside decodes.** One kernel, made for chunks, takes both: a decode becomes a whole tile and walks over
its keys alone, so beside a chunk it costs γ times what it costs alone, launch aside; and the grid has as many
blocks for every decode as the longest chunk needs, which return at once:

    time       max(prefill + γ·max(decode - t0, 0) + t1·(idle blocks)/S,  decode)

    idle blocks = decodes·heads·(⌈longest chunk/64⌉ - 1)

prefill and decode being the times of the parts alone. Held-out error against LLMServingSim's profiles of vLLM
0.19 (FlashAttention 2; 37,920 and 8,448 batches), parts as measured, median / ninetieth percentile:

| fitted to | γ | t0, µs | t1, µs | RTX PRO 6000 | RTX 4090 |
|---|---|---|---|---|---|
| RTX PRO 6000 | 1.79 | 11.4 | 0.45 | 12.6 / 44.4 % | 8.8 / 44.6 % |
| RTX 4090 | 2.14 | 9.5 | 0.55 | 21.5 / 51.7 % | 11.8 / 37.2 % |
| both, as shipped | 1.96 | 10.3 | 0.52 | 16.9 / 45.5 % | 9.1 / 41.0 % |
| no penalty: the sum | | | | 24.8 / 64.7 % | 33.6 / 65.0 % |
| prefill + decode + φ·min(prefill, decode), φ = 0.48 / 1.34 by its own card | | | | 24.0 / 66.7 % | 26.0 / 73.3 % |

A share of the sum, of the smaller part, or of the parts' geometric mean errs by 21 to 35 % in the median on
either card, and its factor does not carry over from one to the other (0.48 and 1.34). Batches of 128 decodes of
over 8,192 tokens fall 30 % short: their KV heads are read four times once the L2 cache does not hold one
(`simkv.cost.kernels.mixed` has that).

**Uneven contexts of decodes alone.** Once there are so many decodes that contexts are no longer split
(FlashAttention 2: from 0.8·2 blocks an SM), the longest is waited for, and walks alone at the rate of a tile:

    wait       φ·(longest - mean)·4·64·head_dim / (F/S)·u,   u = 1/(1 + (1.6·S/(decodes·KV heads))^8)

It adds to memory's time. Error over 327 batches of each card (RTX PRO 6000, RTX 4090), equal contexts by the
decode form and its residual:

| fitted to | φ | RTX PRO 6000 | RTX 4090 |
|---|---|---|---|
| RTX PRO 6000 | 0.85 | 1.5 / 5.4 % | 2.2 / 5.7 % |
| RTX 4090 | 0.76 | 1.5 / 5.3 % | 1.8 / 6.0 % |
| the mean of both, as shipped | 0.81 | 1.5 / 5.4 % | 2.1 / 5.8 % |
| no penalty: the time of equal contexts | | 1.8 / 8.1 % | 2.7 / 13.6 % |

On Hopper, whose FlashAttention 3 packs the query heads of a KV head into one tile and schedules dynamically, on
Ampere and on the L40S both penalties are assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

from simkv.cost.kernels.ufuncs import Values, larger

_TILE_ROWS = 64
_UNSPLIT_FILL, _SPLIT_SHARPNESS = 1.6, 8.0  # thread blocks an SM from which contexts stay whole, how sharply


@dataclass(frozen=True)
class MixedPenalty:
    """What a decode costs beside a prefill chunk; the defaults are fitted to both measured cards."""

    decode_factor: float = 1.96  # γ
    decode_floor_s: float = 10.3e-6  # t0: of the decode kernel, which is not launched, seconds
    idle_block_s: float = 0.52e-6  # t1: a thread block that finds no rows, on its SM, seconds


@dataclass(frozen=True)
class UnevenPenalty:
    """What a long context costs among short ones; the default is the mean of both measured cards."""

    tile_share: float = 0.81  # φ: of the time of a tile of 64 rows at the peak, a key


def mixed_seconds(
    penalty: MixedPenalty,
    prefill_s: Values,
    decode_s: Values,
    num_decodes: Values,
    longest_chunk: Values,
    heads: Values,
    num_sms: int,
) -> Values:
    """Seconds of one layer's attention of chunks and decodes together, from those of its parts alone.

    `heads` are the query heads of a rank. Non-decreasing in everything but `num_sms`; at least the longer part.
    """
    num_idle = num_decodes * heads * larger(-(-longest_chunk // _TILE_ROWS) - 1, 0)
    beside_s = penalty.decode_factor * larger(decode_s - penalty.decode_floor_s, 0.0)
    return larger(prefill_s + beside_s + penalty.idle_block_s * num_idle / num_sms, decode_s)


def uneven_seconds(
    penalty: UnevenPenalty,
    peak_flops_per_s: float,
    num_sms: int,
    num_decodes: Values,
    mean_context: Values,
    longest_context: Values,
    kv_heads: Values,
    head_dim: Values,
) -> Values:
    """Seconds that decodes alone take longer than as many of equal contexts and the same sum, memory-bound ones.

    They belong to memory's time, `wait_s` of `decode_attention.timing`: it grows faster with the mean than this
    falls, so that no longer context saves time.
    """
    fill = num_decodes * kv_heads / num_sms
    unsplit = 1.0 / (1.0 + (_UNSPLIT_FILL / fill) ** _SPLIT_SHARPNESS)
    key_s = 4.0 * _TILE_ROWS * head_dim * num_sms / peak_flops_per_s
    return penalty.tile_share * key_s * larger(longest_context - mean_context, 0.0) * unsplit
