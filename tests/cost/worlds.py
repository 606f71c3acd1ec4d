"""Scenarios and batches for the cost model, built without files."""

from functools import cache

from hypothesis import strategies as st

from simkv.cost import CostModel
from simkv.load.hardware import find_hardware
from simkv.load.model import find_model
from simkv.scheduler.graphs import CudaGraphs
from simkv.spec.checks import scenario_faults
from simkv.spec.engine import EngineSpec
from simkv.spec.parallel import ParallelSpec
from simkv.spec.scenario import Scenario
from simkv.step import PrefillChunk, StepShape

# Dense models of unlike kinds: few KV heads, no GQA, tied tables, fp8 and 4-bit weights.
DENSE_MODELS = (
    "Llama-3.2-1B",
    "Llama-2-7b-hf",
    "Qwen2.5-7B",
    "Qwen3-32B",
    "Llama-3.1-70B",
    "nvidia/Llama-3.1-70B-Instruct-FP8",
    "hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4",
)
GRAPHS = CudaGraphs(max_num_seqs=256, max_num_batched_tokens=8192)


hardware_of = cache(find_hardware)


def scenario_of(model, hardware="h100_sxm", tp=1, pp=1, **engine):
    return Scenario(
        model=find_model(model),
        hardware=hardware_of(hardware),
        parallel=ParallelSpec(tensor_parallel_size=tp, pipeline_parallel_size=pp),
        engine=EngineSpec(**engine),
    )


@cache
def cost_of(model, hardware="h100_sxm", tp=1, pp=1, **engine):
    return CostModel(scenario_of(model, hardware, tp, pp, **engine))


@cache
def layouts(hardware):
    """Every (model, hardware, tp, pp) to be tried, over two nodes where one is too small."""
    found = []
    for model in DENSE_MODELS:
        for tp in (1, 2, 4, 8):
            for pp in (1, 2, 4):
                box = hardware if tp * pp <= 8 else f"{hardware}_{tp * pp // 8}x8"
                if not scenario_faults(scenario_of(model, box, tp, pp)):
                    found.append((model, box, tp, pp))
    return tuple(found)


def shape_of(decodes=(), prefills=(), graphs=GRAPHS, num_new_blocks=0):
    """The batch of one-token requests over contexts `decodes` and of chunks (num_tokens, context_len)."""
    num_tokens = len(decodes) + sum(num_tokens for num_tokens, _ in prefills)
    padded, mode = graphs.pick(num_tokens, is_decode_only=not prefills)
    return StepShape(
        num_decodes=len(decodes),
        decode_kv_tokens=sum(decodes),
        max_decode_context=max(decodes, default=0),
        prefills=tuple(PrefillChunk(*chunk) for chunk in prefills),
        num_sampled=len(decodes) + len(prefills),
        num_padded_tokens=padded,
        graph_mode=mode,
        num_new_blocks=num_new_blocks,
    )


contexts = st.integers(2, 140_000)
chunks = st.tuples(st.integers(1, 9_000), st.integers(0, 130_000))
batches = st.tuples(
    st.one_of(
        st.lists(contexts, max_size=12),
        st.tuples(contexts, st.integers(1, 600)).map(lambda pair: [pair[0]] * pair[1]),
    ),
    st.lists(chunks, max_size=4),
)
nonempty_batches = batches.filter(lambda batch: batch[0] or batch[1])
