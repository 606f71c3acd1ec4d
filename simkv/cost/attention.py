"""Attention of one layer on one rank: chunks over their context, and decodes over theirs."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot
from typing import TYPE_CHECKING

from simkv.cost.kernels.mixed_penalty import MixedPenalty, mixed_seconds
from simkv.cost.tally import Kernel, Side, roofline, weakest
from simkv.spec.hardware import HardwareSpec
from simkv.step import PrefillChunk, Provenance, StepShape

if TYPE_CHECKING:
    from simkv.cost.fitted import FittedKernels


class AttentionCost:
    """Times one layer's attention with `num_heads` query and `num_kv_heads` KV heads on a rank.

    By calibrated kernels where there are, else by the profile's efficiencies. `writes_kv` says whether the
    times include the writing of new tokens to the cache, as those of calibrated kernels do.
    """

    def __init__(
        self,
        hardware: HardwareSpec,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: str,
        kv_dtype_bytes: float,
        fitted: FittedKernels | None = None,
    ):
        shape = (num_heads, num_kv_heads, head_dim, kv_dtype_bytes)
        self._fitted_batch = fitted.batch(*shape) if fitted else None
        self._fitted_chunks = fitted.chunks(*shape) if fitted else None
        self._fitted_prefill = fitted.prefill(*shape) if fitted else None
        self._fitted_decode = fitted.decode(*shape) if fitted else None
        is_whole = None not in (self._fitted_prefill, self._fitted_decode) or bool(self._fitted_batch)
        self.writes_kv = is_whole and fitted is not None and fitted.writes_kv
        gpu, kernels = hardware.gpu, hardware.kernels
        factor = kernels.mixed_decode_factor
        self._penalty = MixedPenalty(decode_factor=factor.value) if factor else None
        self._num_heads, self._num_sms = num_heads, int(gpu.num_sms.value)
        peak = gpu.peak_flops_per_s[dtype].value  # type: ignore[index]
        bandwidth = gpu.hbm_bandwidth_bytes_per_s.value
        self._kv_bytes_per_token = 2 * num_kv_heads * head_dim * kv_dtype_bytes
        self._flops_per_pair = 4 * num_heads * head_dim  # query × key and weight × value, 2 FLOPs each
        self._prefill_flops_per_s = peak * kernels.prefill_attention_efficiency.value
        self._half_length = kernels.prefill_attention_half_length_tokens.value
        self._bytes_per_s = bandwidth * kernels.decode_attention_memory_efficiency.value
        self._floor_s = kernels.decode_attention_floor_s.value
        self._decode_per_token_s = kernels.decode_attention_per_token_s.value

    def batch(self, shape: StepShape) -> Kernel:
        """Time of everything that attends in a batch, which must not be empty: one call a layer."""
        if self._fitted_batch is not None:
            return self._fitted_batch(
                shape.prefills, shape.num_decodes, shape.decode_kv_tokens, shape.max_decode_context
            )
        if not shape.prefills:
            return self.decode(shape.decode_kv_tokens, shape.max_decode_context, shape.num_decodes)
        prefill = self.prefill(shape.prefills)
        if not shape.num_decodes:
            return prefill
        decode = self.decode(shape.decode_kv_tokens, shape.max_decode_context, shape.num_decodes)
        return self._beside(prefill, decode, shape)

    def _beside(self, prefill: Kernel, decode: Kernel, shape: StepShape) -> Kernel:
        """Time of chunks and decodes in one call, which was measured on no such GPU: the sum or more."""
        seconds = prefill.seconds + decode.seconds
        if self._penalty is not None:
            longest = max(chunk for chunk, _ in shape.prefills)
            seconds = mixed_seconds(
                self._penalty,
                prefill.seconds,
                decode.seconds,
                shape.num_decodes,
                longest,
                self._num_heads,
                self._num_sms,
            )
        side: Side = max(prefill, decode).side
        assumed = Provenance.ASSUMED in (prefill.provenance, decode.provenance)
        return Kernel(seconds, side, Provenance.ASSUMED if assumed else Provenance.EXTRAPOLATED)

    def prefill(self, chunks: Sequence[PrefillChunk]) -> Kernel:
        """Time of all prefill chunks of a batch; a prefix never saves time.

        Chunks over prefixes may have been measured apart from whole prompts, which they take as long as at least.
        """
        if self._fitted_chunks is None or not any(context for _, context in chunks):
            return self._whole(chunks)
        over = self._fitted_chunks(chunks)
        alone = self._whole([PrefillChunk(num_tokens, 0) for num_tokens, _ in chunks])
        if over.seconds >= alone.seconds:
            return over
        mark = weakest(over.provenance, alone.provenance, Provenance.INTERPOLATED)
        return Kernel(alone.seconds, alone.side, mark)

    def _whole(self, chunks: Sequence[PrefillChunk]) -> Kernel:
        """Time of chunks by the kernel for whole prompts.

        A chunk of c tokens over a context of p computes c·p + c²/2 query-key pairs. Short sequences do not
        fill the GPU: pairs are worth (1 + h/(p + c)) times their FLOPs, h being the length at half
        efficiency. KV of context and chunk is read once. The floor is that of the decodes. This is the form
        in which the profiles' figures were fitted.
        """
        if self._fitted_prefill is not None:
            return self._fitted_prefill(chunks)
        half = self._half_length
        pairs = sum((c * p + c * c / 2) * (1 + half / (p + c)) for c, p in chunks)
        kv_bytes = sum(c + p for c, p in chunks) * self._kv_bytes_per_token
        return roofline(
            pairs * self._flops_per_pair / self._prefill_flops_per_s,
            kv_bytes / self._bytes_per_s,
            self._floor_s,
        )

    def decode(self, decode_kv_tokens: int, max_decode_context: int, num_decodes: int) -> Kernel:
        """Time of all decodes of a batch, which attend to `decode_kv_tokens` tokens in sum.

        KV bytes over bandwidth, or the longest sequence's own serial time, whichever is longer (smoothly, as
        the root of the sum of squares), above a floor. Form: fitted to vLLM's decode kernels on an H100 for
        ``aiconfigurator-core`` 0.12.0.
        """
        if self._fitted_decode is not None:
            return self._fitted_decode(num_decodes, decode_kv_tokens, max_decode_context)
        memory_s = decode_kv_tokens * self._kv_bytes_per_token / self._bytes_per_s
        compute_s = decode_kv_tokens * self._flops_per_pair / self._prefill_flops_per_s
        serial_s = max_decode_context * self._decode_per_token_s
        return roofline(compute_s, hypot(memory_s, serial_s), self._floor_s)
