"""How many tokens of a prompt one batch takes: vLLM's limit in tokens and, if wanted, simkv's own in time.

A chunk of c tokens over a prefix of p multiplies c·p + c²/2 pairs in attention, so equal chunks of a long
prompt take longer and longer, and under a pipeline each stage waits for the slower one behind it. vLLM has no
remedy. `ChunkRule` (``engine.dynamic_chunking``) shortens the later chunks until all take the time of the
first; the idea is that of SGLang's dynamic chunking, which fits the same quadratic form.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt


@dataclass(frozen=True, slots=True)
class ChunkRule:
    """c tokens over a prefix of p take token_s·c + pair_s·(c·p + c²/2) seconds, besides what any batch takes.

    step_tokens   chunks are cut to multiples of it, and none is shorter: half a tile of the GEMMs
    """

    token_s: float
    pair_s: float
    step_tokens: int = 64

    def seconds(self, num_tokens: int, context_len: int) -> float:
        """Return the time of a chunk."""
        return num_tokens * (self.token_s + self.pair_s * (context_len + num_tokens / 2))

    def tokens_within(self, seconds: float, context_len: int) -> float:
        """Return the longest chunk over a context that takes at most `seconds`.

        >>> rule = ChunkRule(token_s=1e-6, pair_s=1e-10)
        >>> whole_s = rule.seconds(8192, 0)
        >>> [round(rule.tokens_within(whole_s, context)) for context in (0, 60_000, 120_000)]
        [8192, 1631, 885]
        """
        per_token_s = self.token_s + self.pair_s * context_len
        root = per_token_s + sqrt(per_token_s**2 + 2 * self.pair_s * max(seconds, 0.0))
        return 2 * max(seconds, 0.0) / root if root > 0 else float("inf")


class ChunkAllowance:
    """What is left for chunks in one batch.

    limit    tokens of any one request (``long_prefill_token_threshold``, or the whole budget)
    budget   the token budget: with a rule, chunks of a batch together take no longer than one of so many
             tokens at the beginning of a prompt
    """

    __slots__ = ("_is_first", "_left_s", "_limit", "_rule")

    def __init__(self, limit: int, budget: int, rule: ChunkRule | None):
        self._limit, self._rule = limit, rule
        self._left_s = rule.seconds(budget, 0) if rule else 0.0
        self._is_first = True

    def cut(self, num_tokens: int, context_len: int) -> int:
        """Return how many of the next `num_tokens` of a request are computed now; 0 = it waits.

        The first chunk of a batch never waits, so that whoever is asked for first gets on; single tokens, which
        most often are decodes, are let through.
        """
        num_tokens = min(num_tokens, self._limit)
        if self._rule is None or num_tokens <= 1:
            return num_tokens
        room = self._rule.tokens_within(self._left_s, context_len)
        if room >= num_tokens * (
            1 - 1e-9
        ):  # the first chunk of a prompt is the whole budget, roundings apart
            return num_tokens
        num_steps = int(room) // self._rule.step_tokens
        if num_steps == 0 and not self._is_first:
            return 0
        return min(num_tokens, max(num_steps, 1) * self._rule.step_tokens)

    def take(self, num_tokens: int, context_len: int) -> None:
        """Note a chunk that is in the batch."""
        if self._rule is not None and num_tokens > 1:
            self._left_s -= self._rule.seconds(num_tokens, context_len)
            self._is_first = False
