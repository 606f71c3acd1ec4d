"""The step-time model of a dense transformer under tensor and pipeline parallelism.

For each stage: its layers' QKV, output, gate-up and down products, attention, elementwise traffic and
all-reduces; the embedding on the first stage; the head and the sampler on the last.
"""

from __future__ import annotations

from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING

from simkv.cost.attention import AttentionCost
from simkv.cost.collectives import Collectives, send_recv_s
from simkv.cost.gemm import elementwise, gemm
from simkv.cost.tally import Kernel, Side, Tally, weakest
from simkv.errors import InfeasibleError
from simkv.spec.hardware import HardwareSpec
from simkv.spec.model import ModelSpec
from simkv.spec.scenario import Scenario
from simkv.step import GraphMode, Provenance, StepShape, StepTime
from simkv.units import ceil_div

if TYPE_CHECKING:
    from simkv.cost.fitted import FittedKernels, GemmTime
    from simkv.cost.fitted_batch import RowsTime
    from simkv.cost.fitted_collectives import Points

# vLLM's sampler works in fp32 and passes over the logits about three times (copy, softmax, sample).
_SAMPLER_BYTES_PER_LOGIT = 3 * 4.0


def quantized_compute_dtype(model: ModelSpec, hardware: HardwareSpec) -> str:
    """The dtype in which the linear layers multiply: fp8 and int8 only where the tensor cores have them."""
    method = model.quantization.method if model.quantization else None
    wanted = {"fp8": "fp8", "w8a8": "int8"}.get(method or "", model.dtype)
    return wanted if hardware.has_dtype(wanted) else model.dtype


class CostModel:
    """Times batches for one scenario; every answer is a pure function of the shape.

    Raises InfeasibleError for models whose step time is not modelled (experts, latent attention, hybrids) and
    for a dtype that the GPU cannot compute in.
    """

    def __init__(self, scenario: Scenario, points: Points | None = None):
        model, hardware, parallel = scenario.model, scenario.resolved_hardware, scenario.parallel
        engine = scenario.resolved_engine
        refuse_unmodelled(model, hardware)
        self.model, self.hardware = model, hardware
        self._fitted = _fitted_kernels(hardware, points)
        executor = hardware.host.executor_s(engine.distributed_executor_backend)
        self._dispatch = _host_kernel(executor.value, executor.mark)
        self.tp = tp = parallel.tensor_parallel_size
        self.layers_per_stage = scenario.layers_per_stage
        self._compute_dtype = quantized_compute_dtype(model, hardware)
        quantization = model.quantization
        self._weight_bytes = quantization.bytes_per_weight if quantization else model.dtype_bytes
        self._q_size = model.num_attention_heads // tp * model.head_dim
        self._kv_size = max(1, model.num_key_value_heads // tp) * model.head_dim
        self._mlp_size = ceil_div(model.intermediate_size, tp)
        self._vocab_size = ceil_div(model.vocab_size, tp)
        self._attention = AttentionCost(
            hardware,
            model.num_attention_heads // tp,
            max(1, model.num_key_value_heads // tp),
            model.head_dim,
            model.dtype,
            engine.kv_cache_dtype_bytes,
            self._fitted,
        )
        gpus_per_node = hardware.num_gpus_per_node or parallel.num_gpus
        self._group = Collectives(hardware, tp, gpus_per_node, engine.disable_custom_all_reduce, self._fitted)
        # Stage s lies on GPUs s·tp … (s+1)·tp - 1 of the replica.
        self._crosses_nodes = tuple(
            (stage * tp) // gpus_per_node != ((stage + 1) * tp) // gpus_per_node
            for stage in range(len(self.layers_per_stage) - 1)
        )
        self._fitted_hand_over = self._fitted.send_recv() if self._fitted else None
        self._all_but_attention = lru_cache(maxsize=4096)(self._all_but_attention_uncached)
        self._linear_of_layer = lru_cache(maxsize=4096)(self._linear_of_layer_uncached)
        self._gemm_times = lru_cache(maxsize=None)(self._gemm_times_uncached)
        self._row_times = lru_cache(maxsize=None)(self._row_times_uncached)
        self._head = lru_cache(maxsize=4096)(self._head_uncached)
        self._transfers = lru_cache(maxsize=4096)(self._transfers_uncached)

    def with_layers(self, layers_per_stage: tuple[int, ...]) -> CostModel:
        """Return the same model under another partition of its layers; what was found for a layer is shared."""
        other = copy(self)
        other.layers_per_stage = layers_per_stage
        other._all_but_attention = lru_cache(maxsize=4096)(other._all_but_attention_uncached)
        return other

    def stage_times(self, shape: StepShape) -> tuple[StepTime, ...]:
        """Return the time of a batch on each pipeline stage; an empty batch costs nothing."""
        if shape.is_empty:
            return (StepTime(),) * len(self.layers_per_stage)
        in_graph = shape.graph_mode is not GraphMode.NONE
        attention = self._attention.batch(shape)
        others = self._all_but_attention(
            shape.num_padded_tokens, in_graph, shape.num_sampled, shape.num_requests
        )
        times = []
        for (other, cpu), num_layers in zip(others, self.layers_per_stage, strict=True):
            tally = other.plus(attention, num_layers)
            if not in_graph:
                self._add_launches(tally, num_layers, cpu)
            times.append(tally.step_time())
        return tuple(times)

    def transfers_s(self, shape: StepShape) -> tuple[float, ...]:
        """Return the seconds from each stage to the next.

        Hidden states and residual, padded rows × hidden size each; every rank sends its 1/tp to its
        counterpart, which gathers the rest from its group.
        """
        if shape.is_empty:
            return (0.0,) * len(self._crosses_nodes)
        return tuple([kernel.seconds for kernel in self._transfers(shape.num_padded_tokens)])

    def _transfers_uncached(self, num_rows: int) -> list[Kernel]:
        num_bytes, found = 2 * self._hidden_bytes(num_rows), []
        gather = self._group.all_gather(num_bytes)
        for crosses in self._crosses_nodes:
            sent = self._hand_over(num_bytes / self.tp, crosses)
            marks = (sent.provenance,) if self.tp == 1 else (sent.provenance, gather.provenance)
            found.append(Kernel(gather.seconds + sent.seconds, Side.COMM, weakest(*marks)))
        return found

    def _hand_over(self, num_bytes: float, crosses_nodes: bool) -> Kernel:
        """One rank's message to the next stage: calibrated inside a node, else by the link's figures."""
        if self._fitted_hand_over is None or crosses_nodes:
            return Kernel(send_recv_s(self.hardware, num_bytes, crosses_nodes), Side.COMM)
        return self._fitted_hand_over(num_bytes, True)

    def host_s(self, shape: StepShape) -> float:
        """Return the seconds of CPU work of a batch: a fixed part, one a sequence, one a new block."""
        if shape.is_empty:
            return 0.0
        host = self.hardware.host
        return (
            host.step_s.value
            + host.per_sequence_s.value * shape.num_requests
            + host.per_new_block_s.value * shape.num_new_blocks
        )

    def step_time(self, shape: StepShape) -> StepTime:
        """Return everything a batch takes from `schedule` to its tokens, with an otherwise empty pipeline."""
        tally = Tally()
        for time in self.stage_times(shape):
            stage = Tally()
            stage.by_side = [time.compute_s, time.memory_s, time.comm_s, time.host_s]
            stage.by_provenance = [
                time.measured_input_s,
                time.interpolated_input_s,
                time.extrapolated_input_s,
                time.assumed_input_s,
            ]
            tally.add_tally(stage)
        for kernel in () if shape.is_empty else self._transfers(shape.num_padded_tokens):
            tally.add(kernel)
        tally.add(Kernel(self.host_s(shape), Side.HOST))
        return tally.step_time()

    def _hidden_bytes(self, num_rows: int) -> float:
        return num_rows * self.model.hidden_size * self.model.dtype_bytes

    def _all_but_attention_uncached(
        self, num_rows: int, in_graph: bool, num_sampled: int, num_requests: int
    ) -> tuple[tuple[Tally, float], ...]:
        """What does not depend on contexts, a stage at a time; and the seconds of it in which its GPU waits."""
        gap = self._gap(num_requests)
        last = len(self.layers_per_stage) - 1
        stages = []
        for stage, num_layers in enumerate(self.layers_per_stage):
            tally = Tally()
            tally.add_tally(self._linear_of_layer(num_rows, in_graph), num_layers)
            if stage == 0:
                tally.add(self._embedding(num_rows))
                tally.add(self._group.all_reduce(self._hidden_bytes(num_rows), in_graph))
            if stage == last:
                tally.add_tally(self._head(num_sampled))
            tally.add(gap)
            tally.add(self._dispatch)
            stages.append((tally, gap.seconds + self._dispatch.seconds))
        return tuple(stages)

    def _linear_of_layer_uncached(self, num_rows: int, in_graph: bool) -> Tally:
        """All of one layer but attention, for `num_rows` rows."""
        model, hidden = self.model, self.model.hidden_size
        up_matrices = 2 if model.has_gated_mlp else 1
        tally = Tally()
        for n, k in (
            (self._q_size + 2 * self._kv_size, hidden),
            (hidden, self._q_size),
            (up_matrices * self._mlp_size, hidden),
            (hidden, self._mlp_size),
        ):
            tally.add(self._gemm(num_rows, n, k, self._compute_dtype, self._weight_bytes))
        self._add_elementwise(tally, num_rows)
        tally.add(self._group.all_reduce(self._hidden_bytes(num_rows), in_graph), 2)
        return tally

    def _add_elementwise(self, tally: Tally, num_rows: int) -> None:
        """A layer's kernels that only move bytes: two norms, rotary embedding, activation.

        The norms are fused with the residual, rotary embedding works on queries and keys in place. An FP8 or
        INT8 product quantises its input in the kernel before it; only attention's output takes one of its own.
        """
        model = self.model
        up_matrices = 2 if model.has_gated_mlp else 1
        size = model.dtype_bytes
        tally.add(self._moves("layernorm", model.hidden_size, 4 * size, num_rows), 2)
        tally.add(self._moves("rotary_emb", self._q_size + self._kv_size, 2 * size, num_rows))
        tally.add(self._moves("act_fn", self._mlp_size, (up_matrices + 1) * size, num_rows))
        if not self._attention.writes_kv:
            tally.add(self._moves("reshape_and_cache", 2 * self._kv_size, 2 * size, num_rows))
        if self._compute_dtype != model.dtype:
            tally.add(elementwise(self.hardware, num_rows * self._q_size * (size + 1)))

    def _moves(self, name: str, width: int, bytes_per_element: float, num_rows: int) -> Kernel:
        """A kernel that moves bytes: calibrated where the profile has it, else at the profile's bandwidth."""
        time = self._row_times(name, width)
        if time is not None:
            return time(num_rows)
        return elementwise(self.hardware, num_rows * width * bytes_per_element)

    def _row_times_uncached(self, name: str, width: int) -> RowsTime | None:
        return None if self._fitted is None else self._fitted.elementwise(name, width)

    def _gemm(self, m: int, n: int, k: int, dtype: str, weight_bytes: float) -> Kernel:
        """One product: calibrated where the profile has the dtype, else by its efficiencies."""
        time = self._gemm_times(n, k, dtype, weight_bytes)
        if time is not None:
            return time(m)
        return gemm(self.hardware, m, n, k, dtype, weight_bytes, self.model.dtype_bytes)

    def _gemm_times_uncached(self, n: int, k: int, dtype: str, weight_bytes: float) -> GemmTime | None:
        return None if self._fitted is None else self._fitted.gemm(dtype, n, k, weight_bytes)

    def _gap(self, num_requests: int) -> Kernel:
        """The time in which a stage's worker prepares the inputs of a batch while its GPU waits."""
        host = self.hardware.host
        seconds = host.gap_s.value + host.gap_per_sequence_s.value * num_requests
        return _host_kernel(seconds, host.gap_s.mark)

    def _embedding(self, num_rows: int) -> Kernel:
        return self._moves("embedding", self.model.hidden_size, 2 * self.model.dtype_bytes, num_rows)

    def _head_uncached(self, num_rows: int) -> Tally:
        """Final norm, LM head (never quantised), gathering the logits, sampling."""
        model = self.model
        tally = Tally()
        tally.add(self._moves("final_layernorm", model.hidden_size, 4 * model.dtype_bytes, num_rows))
        tally.add(self._gemm(num_rows, self._vocab_size, model.hidden_size, model.dtype, model.dtype_bytes))
        tally.add(self._group.all_gather(num_rows * model.vocab_size * model.dtype_bytes))
        tally.add(self._moves("sampler", model.vocab_size, _SAMPLER_BYTES_PER_LOGIT, num_rows))
        return tally

    def _add_launches(self, tally: Tally, num_layers: int, idle_s: float) -> None:
        """Without a CUDA graph the GPU waits whenever the CPU launches kernels more slowly than it runs them.

        `idle_s` of the tally are no kernels.
        """
        share = num_layers / self.model.num_hidden_layers
        exposed_s = self.hardware.host.eager_step_s.value * share - (tally.total_s - idle_s)
        if exposed_s > 0:
            tally.add(Kernel(exposed_s, Side.HOST))


def _host_kernel(seconds: float, mark: str) -> Kernel:
    """CPU work in front of a stage: measured on one kind of node at most, elsewhere no more than extrapolated."""
    return Kernel(seconds, Side.HOST, Provenance.EXTRAPOLATED if mark == "measured" else Provenance.ASSUMED)


def _fitted_kernels(hardware: HardwareSpec, points: Points | None) -> FittedKernels | None:
    """Calibrated kernels, if the profile has any; imported here, as `simkv plan` needs no numpy."""
    if hardware.calibration is None:
        return None
    from simkv.cost.fitted import FittedKernels

    return FittedKernels(hardware, points)


def refuse_unmodelled(model: ModelSpec, hardware: HardwareSpec) -> None:
    """Raise InfeasibleError if this model's step time is not modelled; its memory is (``simkv plan``)."""
    kind = "mixture-of-experts" if model.is_moe else "latent-attention (MLA)" if model.is_mla else None
    kind = kind or ("hybrid-attention" if model.is_hybrid else None)
    kind = kind or ("sliding-window" if model.sliding_window is not None else None)
    if kind is not None:
        raise InfeasibleError(
            f"model: {model.name} is a {kind} model, whose step time is not modelled",
            ["'simkv plan', which answers for its memory", "a dense model"],
        )
    if not hardware.has_dtype(model.dtype):
        raise InfeasibleError(
            f"model.dtype: {hardware.name} has no peak_flops_per_s in {model.dtype}",
            [f"model.dtype={dtype}" for dtype in ("bfloat16", "float16") if hardware.has_dtype(dtype)],
        )
