"""A model's dimensions, spelt as in its Hugging Face ``config.json``, and what follows from them."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from simkv.spec.base import NonNegativeInt, PositiveInt, Spec, StrTuple

# Bytes of one element; 4-bit types are half a byte (their scales are counted apart).
DTYPE_BYTES = {
    "float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0,
    "int8": 1.0, "int4": 0.5, "mxfp4": 0.5, "nvfp4": 0.5,
}  # fmt: skip


class QuantizationSpec(Spec):
    """How the checkpoint's linear layers are stored; embeddings, head, norms and routers stay in the model's dtype.

    method            ``fp8`` (weights and activations), ``w8a8`` (int8), ``w4a16`` (AWQ, GPTQ), ``mxfp4``
    group_size        weights that share one scale; None = one scale a tensor or channel
    scope             ``linear``: every linear layer of the decoder; ``experts``: the routed experts alone
    has_zero_points   a zero point beside each scale, as wide as a weight (AWQ)
    """

    method: Literal["fp8", "w8a8", "w4a16", "mxfp4", "nvfp4"]
    group_size: PositiveInt | None = None
    scope: Literal["linear", "experts"] = "linear"
    has_zero_points: bool = False

    @property
    def weight_dtype(self) -> str:
        """The element type of a packed weight."""
        return {"fp8": "fp8", "w8a8": "int8", "w4a16": "int4", "mxfp4": "mxfp4", "nvfp4": "nvfp4"}[
            self.method
        ]

    @property
    def bytes_per_weight(self) -> float:
        """Bytes of one weight, its share of the scale included (2-byte scale; 1 byte in mxfp4/nvfp4)."""
        element_bytes = DTYPE_BYTES[self.weight_dtype]
        if self.group_size is None:
            return element_bytes
        shared_bytes = 1.0 if self.method in ("mxfp4", "nvfp4") else 2.0
        shared_bytes += element_bytes if self.has_zero_points else 0.0
        return element_bytes + shared_bytes / self.group_size

    @property
    def quantizes_activations(self) -> bool:
        """True if the linear layers read their input in 8 bits."""
        return self.method in ("fp8", "w8a8")


class ModelSpec(Spec):
    """A decoder-only transformer.

    Field names are those of Hugging Face configs; where families differ (``n_routed_experts``,
    ``num_local_experts``), the more common name is used.
    """

    name: str
    source: str = "given"
    num_hidden_layers: PositiveInt
    hidden_size: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    head_dim: PositiveInt
    intermediate_size: PositiveInt
    vocab_size: PositiveInt
    max_position_embeddings: PositiveInt
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    tie_word_embeddings: bool = False
    attention_bias: bool = False  # on q, k and v
    attention_output_bias: bool = False
    mlp_bias: bool = False
    has_qk_norm: bool = False
    has_gated_mlp: bool = True  # gate and up projection; else up only
    quantization: QuantizationSpec | None = None
    has_attention_output_gate: bool = False  # the query projection is twice as wide (Qwen3-Next)
    # rotary embedding: the share of a head that turns, and the positions its tables hold in all; None =
    # one table of max_position_embeddings, 0 = none
    partial_rotary_factor: Annotated[float, Field(ge=0, le=1)] = 1.0
    num_rotary_positions: NonNegativeInt | None = None
    # layers that do not attend to everything: "full_attention", "sliding_attention", "linear_attention", …
    layer_types: StrTuple = ()
    sliding_window: PositiveInt | None = None
    # linear attention (gated delta net): a state of fixed size instead of a cache that grows
    linear_num_key_heads: PositiveInt | None = None
    linear_num_value_heads: PositiveInt | None = None
    linear_key_head_dim: PositiveInt | None = None
    linear_value_head_dim: PositiveInt | None = None
    linear_conv_kernel_dim: PositiveInt | None = None
    # mixture of experts
    num_experts: NonNegativeInt = 0
    num_experts_per_tok: NonNegativeInt = 0
    moe_intermediate_size: PositiveInt | None = None
    num_shared_experts: NonNegativeInt = 0
    shared_expert_intermediate_size: PositiveInt | None = None
    first_k_dense_replace: NonNegativeInt = 0
    # multi-head latent attention
    kv_lora_rank: PositiveInt | None = None
    q_lora_rank: PositiveInt | None = None
    qk_nope_head_dim: PositiveInt | None = None
    qk_rope_head_dim: PositiveInt | None = None
    v_head_dim: PositiveInt | None = None
    # parameters outside the language model: a vision tower and its projector
    num_extra_parameters: NonNegativeInt = 0
    # pixels of an image that become one token, (patch size × merged patches)²; 0 = takes no images
    image_pixels_per_token: NonNegativeInt = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.num_attention_heads % self.num_key_value_heads and not self.is_mla:
            raise ValueError(
                f"num_key_value_heads: {self.num_key_value_heads} does not divide "
                f"num_attention_heads {self.num_attention_heads}"
            )
        latent = (self.qk_nope_head_dim, self.qk_rope_head_dim, self.v_head_dim)
        if self.is_mla and None in latent:
            raise ValueError(
                "kv_lora_rank: needs qk_nope_head_dim, qk_rope_head_dim and v_head_dim beside it"
            )
        linear = (
            self.linear_num_key_heads, self.linear_num_value_heads, self.linear_key_head_dim,
            self.linear_value_head_dim, self.linear_conv_kernel_dim,
        )  # fmt: skip
        if "linear_attention" in self.layer_types and None in linear:
            raise ValueError(
                "layer_types: linear_attention needs linear_num_key_heads, linear_num_value_heads, "
                "linear_key_head_dim, linear_value_head_dim and linear_conv_kernel_dim"
            )
        if self.layer_types and len(self.layer_types) != self.num_hidden_layers:
            raise ValueError(
                f"layer_types: wanted {self.num_hidden_layers} entries, got {len(self.layer_types)}"
            )
        return self

    @property
    def is_moe(self) -> bool:
        """True if some layers have experts."""
        return self.num_experts > 0

    @property
    def is_mla(self) -> bool:
        """True if the KV cache holds a latent instead of keys and values."""
        return self.kv_lora_rank is not None

    @property
    def is_hybrid(self) -> bool:
        """True if the layers do not all cache the same tokens."""
        return len(set(self.layer_types)) > 1

    @property
    def rotary_table_elements(self) -> int:
        """Elements of the cosine and sine tables, which every rank holds whole."""
        turning = self.qk_rope_head_dim or round(self.head_dim * self.partial_rotary_factor)
        positions = self.num_rotary_positions
        return turning * (self.max_position_embeddings if positions is None else positions)

    @property
    def dtype_bytes(self) -> float:
        """Bytes of an element of the activations and of unquantised weights."""
        return DTYPE_BYTES[self.dtype]

    @cached_property
    def num_attention_parameters(self) -> int:
        """Weights of one layer's attention projections."""
        h = self.hidden_size
        heads = self.num_attention_heads
        if self.is_mla:
            assert self.kv_lora_rank and self.qk_nope_head_dim and self.qk_rope_head_dim and self.v_head_dim
            q_dim = heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
            q = h * q_dim if self.q_lora_rank is None else self.q_lora_rank * (h + q_dim)
            kv = h * (self.kv_lora_rank + self.qk_rope_head_dim)
            kv_up = self.kv_lora_rank * heads * (self.qk_nope_head_dim + self.v_head_dim)
            return q + kv + kv_up + heads * self.v_head_dim * h
        q_dim, kv_dim = heads * self.head_dim, self.num_key_value_heads * self.head_dim
        biases = (q_dim + 2 * kv_dim) * self.attention_bias + h * self.attention_output_bias
        gate = h * q_dim * self.has_attention_output_gate
        return h * (q_dim + 2 * kv_dim) + q_dim * h + gate + biases

    @cached_property
    def num_linear_attention_parameters(self) -> int:
        """Weights of a linear-attention layer: projections of q, k, v, gates and output, and a convolution."""
        if self.linear_num_value_heads is None:
            return 0
        assert self.linear_value_head_dim and self.linear_conv_kernel_dim
        values = self.linear_num_value_heads * self.linear_value_head_dim
        projected = self.linear_conv_dim + values + 2 * self.linear_num_value_heads
        small = 2 * self.linear_num_value_heads + self.linear_value_head_dim
        convolution = self.linear_conv_dim * self.linear_conv_kernel_dim
        return self.hidden_size * (projected + values) + convolution + small

    @property
    def linear_conv_dim(self) -> int:
        """Channels of a linear-attention layer's convolution: queries, keys and values."""
        assert self.linear_num_key_heads and self.linear_key_head_dim
        assert self.linear_num_value_heads and self.linear_value_head_dim
        keys = self.linear_num_key_heads * self.linear_key_head_dim
        return 2 * keys + self.linear_num_value_heads * self.linear_value_head_dim

    def num_mlp_parameters(self, layer: int) -> int:
        """Weights of the feed-forward part of layer `layer` (all experts, shared ones and the router)."""
        matrices = 3 if self.has_gated_mlp else 2
        if not self.is_moe or layer < self.first_k_dense_replace:
            biases = (self.intermediate_size * (matrices - 1) + self.hidden_size) * self.mlp_bias
            return matrices * self.hidden_size * self.intermediate_size + biases
        width = self.moe_intermediate_size or self.intermediate_size
        # gpt-oss: with mlp_bias the experts and the router have biases too
        expert = matrices * self.hidden_size * width
        expert += (width * (matrices - 1) + self.hidden_size) * self.mlp_bias
        router = (self.hidden_size + self.mlp_bias) * self.num_experts
        if self.shared_expert_intermediate_size is not None:
            # Qwen: the shared expert has a gate of its own
            shared = self.hidden_size * (matrices * self.shared_expert_intermediate_size + 1)
        else:
            shared = self.num_shared_experts * expert
        return self.num_experts * expert + shared + router

    @property
    def num_norm_parameters_per_layer(self) -> int:
        """Weights of one layer's norms, which every rank holds whole (Gemma's two further ones left out)."""
        latent = (self.kv_lora_rank or 0) + (self.q_lora_rank or 0)
        return 2 * self.hidden_size + 2 * self.head_dim * self.has_qk_norm + latent

    @property
    def num_embedding_parameters(self) -> int:
        """Weights of the token embedding; the head has as many unless it is tied."""
        return self.vocab_size * self.hidden_size

    @property
    def num_parameters(self) -> int:
        """All weights of the model."""
        num_linear = self.layer_types.count("linear_attention")
        layers = self.num_hidden_layers * self.num_norm_parameters_per_layer
        layers += (self.num_hidden_layers - num_linear) * self.num_attention_parameters
        layers += num_linear * self.num_linear_attention_parameters
        mlps = sum(self.num_mlp_parameters(layer) for layer in range(self.num_hidden_layers))
        tables = self.num_embedding_parameters * (1 if self.tie_word_embeddings else 2)
        return layers + mlps + tables + self.hidden_size + self.num_extra_parameters

    def kv_elements_per_token_per_layer(self, tensor_parallel_size: int = 1) -> int:
        """Elements one token adds to one layer's cache on one rank.

        2 · max(1, kv_heads / tp) · head_dim; a latent (MLA) is held whole by every rank.
        """
        if self.is_mla:
            assert self.kv_lora_rank and self.qk_rope_head_dim
            return self.kv_lora_rank + self.qk_rope_head_dim
        return 2 * max(1, self.num_key_value_heads // tensor_parallel_size) * self.head_dim

    def kv_bytes(self, num_tokens: int, dtype_bytes: float = 2.0) -> int:
        """Bytes of the whole model's KV cache for `num_tokens` tokens of one request.

        A 32-layer model with 32 KV heads of 128 needs 64 GiB for 131,072 tokens in 16 bits.
        """
        elements = self.kv_elements_per_token_per_layer() * self.num_hidden_layers * num_tokens
        return round(elements * dtype_bytes)
