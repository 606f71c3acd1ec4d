"""The activation peak of vLLM's profile run: the larger of the forward pass of a full batch and the sampler.

T tokens (`max_num_batched_tokens`), S rows (`max_num_seqs`), h hidden, I intermediate size, V vocabulary, a
bytes of the model's dtype. Constants are fitted to public start-up logs on H100s; fit errors: docs/memory.md.
"""

from __future__ import annotations

from simkv.kv.weights import VOCABULARY_PADDING
from simkv.spec.engine import FIRST_V1
from simkv.spec.model import ModelSpec
from simkv.spec.scenario import Scenario
from simkv.units import GIB, ceil_div

# Three tensors of T × h live beside those of the MLP at the forward's peak (residual, hidden states, attention
# output), and as many stay on a stage of a pipeline that sends its output on. With what the libraries take:
# dense rows of 0.11-0.19 and V0 within 0.08 GiB, T from 64 to 20,000.
HIDDEN_TENSORS = 3
WORKSPACE_BYTES = round(0.06 * GIB)
# Sampler, bytes per row and vocabulary entry besides the logits in the model's dtype: logits in fp32,
# probabilities, masks; rows of 0.17-0.19 within 0.03 GiB. Until 0.16 PyTorch sorted them for top-k and top-p
# (values, 64-bit indices, cumulative sums): V0 to 0.16, S from 256 to 4,096, within 0.05 GiB - but for one
# row of 0.11 that has the later figure: FlashInfer's sampler, where it is installed, sorts nothing.
SAMPLER_BYTES_PER_LOGIT = 12.5
SORTING_SAMPLER_BYTES_PER_LOGIT = 36.0
SORTING_SAMPLER_UNTIL = (0, 16)
RECEIVED_TENSORS = 2  # hidden states and residual, which vLLM allocates for a full batch
# The experts' workspaces stay allocated, and so add to the sampler's peak, in versions that log it (0.19);
# 0.10 freed them.
KEEPS_EXPERT_WORKSPACE_SINCE = (0, 13)


def activation_peak_bytes(scenario: Scenario, stage: int) -> int:
    """Bytes that the profile run takes at its peak on a rank of this stage.

    forward  = a·T·(3·I/tp + 3·h) + T·I/tp (inputs in 8 bits, if the layers read such) + 0.06 GiB
    sampler  = a·T·h + (12.5 + a)·S·V + 0.06 GiB, on the last stage
    Mixtures of experts add the two buffers of their kernels, models with a vision tower what the profile run
    puts into it, stages of a pipeline what they pass on.
    """
    engine, model = scenario.resolved_engine, scenario.model
    tokens, last = engine.max_num_batched_tokens, len(scenario.layers_per_stage) - 1
    hidden_bytes = tokens * model.hidden_size * model.dtype_bytes
    experts = _expert_workspace_bytes(scenario)
    passed = 0.0
    if last > 0:
        passed = hidden_bytes * (HIDDEN_TENSORS if stage < last else RECEIVED_TENSORS)
    passed += _image_bytes(scenario)
    forward = _forward_bytes(scenario) + experts
    if stage < last:
        return round(passed + forward)
    kept = experts if engine.version >= KEEPS_EXPERT_WORKSPACE_SINCE else 0.0
    return round(passed + max(forward, hidden_bytes + _sampler_bytes(scenario) + kept))


def _forward_bytes(scenario: Scenario) -> float:
    model, tp = scenario.model, scenario.parallel.tensor_parallel_size
    tokens = scenario.resolved_engine.max_num_batched_tokens
    width = _dense_width(model) / tp
    inner = 3 if model.has_gated_mlp else 2
    elements = inner * width + HIDDEN_TENSORS * model.hidden_size
    quantization = model.quantization
    packs_inputs = quantization and quantization.scope == "linear" and quantization.quantizes_activations
    packed = width if packs_inputs else 0.0
    return tokens * (elements * model.dtype_bytes + packed) + WORKSPACE_BYTES


def _dense_width(model: ModelSpec) -> int:
    """The widest feed-forward part that is not routed."""
    if not model.is_moe:
        return model.intermediate_size
    shared = model.shared_expert_intermediate_size
    if shared is None:
        shared = model.num_shared_experts * (model.moe_intermediate_size or model.intermediate_size)
    return max(shared, model.intermediate_size if model.first_k_dense_replace else 0)


def _sampler_bytes(scenario: Scenario) -> float:
    engine, model = scenario.resolved_engine, scenario.model
    vocabulary = ceil_div(model.vocab_size, VOCABULARY_PADDING) * VOCABULARY_PADDING
    rows = min(engine.max_num_seqs, engine.max_num_batched_tokens)
    sorts = engine.version <= SORTING_SAMPLER_UNTIL
    per_logit = SORTING_SAMPLER_BYTES_PER_LOGIT if sorts else SAMPLER_BYTES_PER_LOGIT
    return (per_logit + model.dtype_bytes) * rows * vocabulary + WORKSPACE_BYTES


def _expert_workspace_bytes(scenario: Scenario) -> float:
    """The two buffers of vLLM's Triton experts, T·k rows each; the kernels for mxfp4 have none.

    Widths: max(I/tp, h) after the activation, max(2·I/tp, h) before it (`TritonExperts.workspace_shapes`).
    """
    model, tp = scenario.model, scenario.parallel.tensor_parallel_size
    if not model.is_moe or (model.quantization and model.quantization.method == "mxfp4"):
        return 0.0
    width = (model.moe_intermediate_size or model.intermediate_size) / tp
    widths = max(width, model.hidden_size) + max(2 * width, model.hidden_size)
    rows = scenario.resolved_engine.max_num_batched_tokens * model.num_experts_per_tok
    return rows * widths * model.dtype_bytes


def _image_bytes(scenario: Scenario) -> float:
    """Images that fill a batch, three colours a pixel, and the tower's output for them."""
    engine, model = scenario.resolved_engine, scenario.model
    if not model.image_pixels_per_token or engine.version < FIRST_V1:
        return 0.0
    per_token = 3 * model.image_pixels_per_token + model.hidden_size
    return engine.max_num_batched_tokens * per_token * model.dtype_bytes
