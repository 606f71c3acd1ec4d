"""The narrow waist: what a scheduler decided, what a cost model needs, and what a step took.

`scheduler` makes a `StepPlan`, whose `StepShape` is all that `cost` ever sees; `cost` answers with a
`StepTime`. Neither imports the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simkv.scheduler.request import Request


class GraphMode(StrEnum):
    """How a batch is launched: one CUDA graph, graphs between the attention calls, or kernel by kernel."""

    FULL = "full"
    PIECEWISE = "piecewise"
    NONE = "none"


class PrefillChunk(NamedTuple):
    """`num_tokens` new tokens of one request over `context_len` tokens that are already in the KV cache."""

    num_tokens: int
    context_len: int


@dataclass(frozen=True, slots=True)
class StepShape:
    """The aggregates of one batch that decide how long it takes.

    num_decodes        requests that run exactly one token over a non-empty context
    decode_kv_tokens   tokens those decodes attend to in sum, their own token included
    max_decode_context the largest of them: one 131K decode among 31 short ones is not 32 equal ones
    prefills           the other requests' chunks
    num_sampled        rows of the LM head and the sampler (vLLM: one for every request of the batch)
    num_padded_tokens  rows of every GEMM: the tokens, rounded up to the CUDA graph that is replayed
    graph_mode         how the batch is launched
    num_new_blocks     KV blocks handed out for this step (host work)
    """

    num_decodes: int = 0
    decode_kv_tokens: int = 0
    max_decode_context: int = 0
    prefills: tuple[PrefillChunk, ...] = ()
    num_sampled: int = 0
    num_padded_tokens: int = 0
    graph_mode: GraphMode = GraphMode.NONE
    num_new_blocks: int = 0

    @property
    def num_prefill_tokens(self) -> int:
        """New tokens in prefill chunks."""
        return sum(chunk.num_tokens for chunk in self.prefills)

    @property
    def num_tokens(self) -> int:
        """New tokens in the batch, without padding."""
        return self.num_decodes + self.num_prefill_tokens

    @property
    def num_requests(self) -> int:
        """Requests in the batch."""
        return self.num_decodes + len(self.prefills)

    @property
    def is_empty(self) -> bool:
        """True if nothing is scheduled: such a step costs no time."""
        return self.num_decodes == 0 and not self.prefills


class Scheduled(NamedTuple):
    """One request's share of a batch; `samples` says whether the batch yields a token for it."""

    request: Request
    num_tokens: int
    samples: bool


@dataclass(slots=True)
class StepPlan:
    """What `Scheduler.schedule` decided for one batch, in its order.

    `hits` are the tokens found in the prefix cache by each request admitted in this step; `new_blocks` the
    block ids handed out, for an admitted request its whole table.
    """

    scheduled: Sequence[Scheduled] = ()
    new: list[Request] = field(default_factory=list)
    resumed: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    hits: dict[int, int] = field(default_factory=dict)
    new_blocks: dict[int, list[int]] = field(default_factory=dict)
    num_running: int = 0
    num_waiting: int = 0
    num_free_blocks: int = 0
    shape: StepShape = StepShape()

    @property
    def is_empty(self) -> bool:
        """True if no request is scheduled."""
        return not self.scheduled


class Provenance(StrEnum):
    """Where an input of a step time comes from."""

    MEASURED = "measured"
    INTERPOLATED = "interpolated"
    EXTRAPOLATED = "extrapolated"
    ASSUMED = "assumed"


class StepTime(NamedTuple):
    """Seconds of one batch on one pipeline stage, split so that the parts sum to the total.

    Each kernel's time goes to the side of its roofline that binds it: `compute_s` or `memory_s`; collectives
    go to `comm_s`; `host_s` is the time the GPU waits for its worker's CPU. The four `..._input_s` say how
    much of the total rests on measured, interpolated, extrapolated or assumed inputs; they sum to the total
    as well.
    """

    compute_s: float = 0.0
    memory_s: float = 0.0
    comm_s: float = 0.0
    host_s: float = 0.0
    measured_input_s: float = 0.0
    interpolated_input_s: float = 0.0
    extrapolated_input_s: float = 0.0
    assumed_input_s: float = 0.0

    @property
    def total_s(self) -> float:
        """The sum of the parts."""
        return self.compute_s + self.memory_s + self.comm_s + self.host_s
