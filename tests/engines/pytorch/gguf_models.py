"""Tiny seeded GGUF models of every architecture, named and laid out as in real files."""

from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter
from msgspec import Struct

from tests.engines.llamacpp.llama_file import NUM_TOKENS, add_vocabulary

# A block of llama.cpp's K formats; what is packed has rows of as many numbers, or twice that.
_SIZE = 256
_NUM_HEADS = 4
_NUM_KV_HEADS = 2


class Tiny(Struct, frozen=True, kw_only=True):
    """One model; `values` are those of its header that not all have."""

    architecture: str = "llama"
    values: dict[str, Any] = {}
    num_layers: int = 2
    head_dim: int = 64
    num_experts: int = 0
    has_shared_expert: bool = False
    has_qkv_bias: bool = False
    has_other_biases: bool = False
    normalises_heads: bool = False
    normalises_outputs: bool = False
    is_tied: bool = False
    has_divisors: bool = False


_EXPERTS = {"expert_count": 4, "expert_used_count": 2}
_GEMMA = {"normalises_outputs": True, "is_tied": True, "num_layers": 3}
_GEMMA3 = {**_GEMMA, "architecture": "gemma3", "normalises_heads": True}
_LOCAL = {"attention.sliding_window": 6}

MODELS = {
    "llama": Tiny(),
    "llama-tied": Tiny(is_tied=True, values={"rope.freq_base": 500_000.0}),
    "llama-biased": Tiny(has_qkv_bias=True, has_other_biases=True),
    "llama-divisors": Tiny(has_divisors=True),
    "llama-factor": Tiny(values={"rope.scaling.factor": 4.0}),
    "llama-old-factor": Tiny(values={"rope.scale_linear": 4.0}),
    "llama-not-scaled": Tiny(
        values={"rope.scaling.type": "none", "rope.scaling.factor": 4.0},
    ),
    "llama-yarn": Tiny(
        has_divisors=True,
        values={
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 32,
            "rope.scaling.attn_factor": 1.25,
        },
    ),
    "mixtral": Tiny(num_experts=4, values=_EXPERTS),
    "qwen2": Tiny(architecture="qwen2", has_qkv_bias=True, is_tied=True),
    "qwen2-moe": Tiny(
        architecture="qwen2moe",
        has_qkv_bias=True,
        num_experts=4,
        has_shared_expert=True,
        values={
            **_EXPERTS,
            "expert_feed_forward_length": _SIZE,
            "expert_shared_feed_forward_length": _SIZE,
        },
    ),
    "qwen2-moe-old": Tiny(
        architecture="qwen2moe",
        has_qkv_bias=True,
        num_experts=4,
        has_shared_expert=True,
        values={**_EXPERTS, "expert_used_count": 1},
    ),
    "qwen3": Tiny(architecture="qwen3", head_dim=128, normalises_heads=True, is_tied=True),
    "qwen3-moe": Tiny(
        architecture="qwen3moe",
        head_dim=128,
        normalises_heads=True,
        num_experts=4,
        values={**_EXPERTS, "expert_feed_forward_length": _SIZE},
    ),
    "gemma2": Tiny(
        **_GEMMA,
        architecture="gemma2",
        values={**_LOCAL, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    ),
    "gemma2-27b": Tiny(
        **{**_GEMMA, "num_layers": 46}, architecture="gemma2", head_dim=128, values=_LOCAL
    ),
    "gemma3": Tiny(
        **_GEMMA3,
        values={
            **_LOCAL,
            "attention.sliding_window_pattern": 2,
            "rope.freq_base": 1_000_000.0,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        },
    ),
    "gemma3-listed": Tiny(
        **_GEMMA3, values={**_LOCAL, "attention.sliding_window_pattern": [False, True, True]}
    ),
    "gemma3-all-local": Tiny(**_GEMMA3, values={**_LOCAL, "attention.sliding_window_pattern": 0}),
    "gemma3-global": Tiny(**_GEMMA3, values={"final_logit_softcapping": 3.0}),
}


def write(name: str, path: Path) -> Path:
    """The model of that name in 32 bits."""
    tiny = MODELS[name]
    writer = GGUFWriter(path, tiny.architecture)
    sizes = {
        "block_count": tiny.num_layers,
        "context_length": 128,
        "embedding_length": _SIZE,
        "feed_forward_length": _SIZE,
        "attention.head_count": _NUM_HEADS,
        "attention.head_count_kv": _NUM_KV_HEADS,
        "attention.key_length": tiny.head_dim,
        "attention.value_length": tiny.head_dim,
        "attention.layer_norm_rms_epsilon": 1e-6,
    }
    for key, value in {**sizes, **tiny.values}.items():
        _add_value(writer, f"{tiny.architecture}.{key}", value)
    add_vocabulary(writer)
    _Tensors(writer, tiny).add()
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_value(writer: GGUFWriter, key: str, value: Any) -> None:
    add = {
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }[type(value)]
    add(key, value)


class _Tensors:
    """Adds a model's tensors; each drawn so that outputs are about as large as inputs."""

    def __init__(self, writer: GGUFWriter, tiny: Tiny) -> None:
        self._writer = writer
        self._tiny = tiny
        self._draw = np.random.default_rng(3)

    def add(self) -> None:
        tiny = self._tiny
        self._matrix("token_embd", NUM_TOKENS, _SIZE)
        self._norm("output_norm", _SIZE)
        if not tiny.is_tied:
            self._matrix("output", NUM_TOKENS, _SIZE)
        if tiny.has_divisors:
            divisors = np.linspace(1, 8, tiny.head_dim // 2, dtype=np.float32)
            self._writer.add_tensor("rope_freqs.weight", divisors)
        for layer in range(tiny.num_layers):
            self._attention(f"blk.{layer}.")
            if tiny.num_experts:
                self._experts(f"blk.{layer}.")
            else:
                self._mlp(f"blk.{layer}.")

    def _attention(self, layer: str) -> None:
        tiny = self._tiny
        queries, keys = _NUM_HEADS * tiny.head_dim, _NUM_KV_HEADS * tiny.head_dim
        self._norm(f"{layer}attn_norm", _SIZE)
        for name, size in (("attn_q", queries), ("attn_k", keys), ("attn_v", keys)):
            self._matrix(layer + name, size, _SIZE, has_bias=tiny.has_qkv_bias)
        self._matrix(f"{layer}attn_output", _SIZE, queries, has_bias=tiny.has_other_biases)
        if tiny.normalises_heads:
            self._norm(f"{layer}attn_q_norm", tiny.head_dim)
            self._norm(f"{layer}attn_k_norm", tiny.head_dim)
        self._norm(f"{layer}ffn_norm", _SIZE)
        if tiny.normalises_outputs:
            self._norm(f"{layer}post_attention_norm", _SIZE)
            self._norm(f"{layer}post_ffw_norm", _SIZE)

    def _mlp(self, layer: str) -> None:
        for name in ("ffn_gate", "ffn_up", "ffn_down"):
            self._matrix(layer + name, _SIZE, _SIZE, has_bias=self._tiny.has_other_biases)

    def _experts(self, layer: str) -> None:
        count = self._tiny.num_experts
        self._matrix(f"{layer}ffn_gate_inp", count, _SIZE)
        for name in ("ffn_gate", "ffn_up", "ffn_down"):
            self._matrix(f"{layer}{name}_exps", count, _SIZE, _SIZE)
            if self._tiny.has_shared_expert:
                self._matrix(f"{layer}{name}_shexp", _SIZE, _SIZE)
        if self._tiny.has_shared_expert:
            self._matrix(f"{layer}ffn_gate_inp_shexp", _SIZE)

    def _matrix(self, name: str, *shape: int, has_bias: bool = False) -> None:
        self._add(f"{name}.weight", self._draw.normal(0, shape[-1] ** -0.5, shape))
        if has_bias:
            self._add(f"{name}.bias", self._draw.normal(0, 0.5, shape[0]))

    def _norm(self, name: str, size: int) -> None:
        self._add(f"{name}.weight", self._draw.uniform(0.5, 1.5, size))

    def _add(self, name: str, values: np.ndarray[Any, np.dtype[np.float64]]) -> None:
        self._writer.add_tensor(name, values.astype(np.float32))
