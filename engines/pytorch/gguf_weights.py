"""A GGUF file as a source of weights: tensors by the names of a Hugging Face Llama, unpacked."""

import re
from collections.abc import Iterator
from typing import Any, Final

import torch
from msgspec.structs import replace
from numpy.typing import NDArray
from torch import Tensor

from engines.pytorch.fields import Fields
from engines.pytorch.gguf_config import read_gguf_config
from engines.pytorch.gguf_header import GgufHeader, StoredTensor
from engines.pytorch.model_config import ModelConfig

# Where a file holds its stretched angles ready made; they belong to the configuration.
_FREQUENCY_DIVISORS: Final = "rope_freqs.weight"

_RENAMED: Final = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "output": "lm_head",
}
_RENAMED_IN_LAYER: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.*.gate_proj",
    "ffn_up_exps": "mlp.experts.*.up_proj",
    "ffn_down_exps": "mlp.experts.*.down_proj",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}
# The norm before a layer's network goes by the place that it has in each family.
_MLP_NORM: Final = {"llama": "post_attention_layernorm", "gemma": "pre_feedforward_layernorm"}
# A matrix of one row, stored as that row.
_SHARED_GATE: Final = "shared_expert_gate.weight"
_IN_LAYER: Final = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
# llama.cpp pairs neighbouring numbers of a head where the others pair halves.
_PAIRS_NEIGHBOURS: Final = frozenset({"llama"})
_IS_TURNED: Final = re.compile(r"\.self_attn\.[qk]_proj\.")


class GgufWeights:
    """The tensors of one file. Raises CatalogueError as `GgufHeader` and its configuration do."""

    def __init__(self, header: GgufHeader) -> None:
        self._header = header
        self.label = header.file
        self.config = read_config(header)
        self._places = dict(self._place())
        shapes = {
            name: tensor.shape[len(index) :] for name, (tensor, index) in self._places.items()
        }
        gates = {name: (1, *shapes[name]) for name in shapes if name.endswith(_SHARED_GATE)}
        self.shapes = shapes | gates

    def _place(self) -> Iterator[tuple[str, tuple[StoredTensor, tuple[int, ...]]]]:
        """Where each tensor is: in which of the file's, and at which index of it."""
        for stored, tensor in self._header.tensors.items():
            name = self._rename(stored)
            if "*" in name:
                for number in range(tensor.shape[0]):
                    yield name.replace("*", str(number)), (tensor, (number,))
            elif stored != _FREQUENCY_DIVISORS:
                yield name, (tensor, ())

    def _rename(self, stored: str) -> str:
        found = _IN_LAYER.fullmatch(stored)
        if found is None:
            stem, _, kind = stored.rpartition(".")
            return f"{_RENAMED.get(stem, stem)}.{kind}"
        layer, stem, kind = found.groups()
        mlp_norm = {"ffn_norm": _MLP_NORM[self.config.family]}
        name = (_RENAMED_IN_LAYER | mlp_norm).get(stem, stem)
        return f"layers.{layer}.{name}.{kind}"

    def file_of(self, name: str) -> str:
        """For messages: the file and the tensor's name in it."""
        return f"{self._header.file}: the tensor {self._places[name][0].name}"

    def read(self, name: str, part: tuple[slice, ...]) -> Tensor:
        """A part of a tensor, float32 where it was packed."""
        tensor, index = self._places[name]
        if name.endswith(_SHARED_GATE):
            return _to_torch(self._header.numbers(tensor)).unsqueeze(0)
        rows = part[: len(self.shapes[name]) - 1]
        read = _to_torch(self._header.numbers(tensor, (*index, *rows)))
        if self.config.architecture in _PAIRS_NEIGHBOURS and _IS_TURNED.search(name):
            read = _pair_halves(read, self.config.head_dim)
        return read[(*[slice(None)] * len(rows), *part[len(rows) :])]


def read_config(header: GgufHeader) -> ModelConfig:
    """What the header says of the model."""
    architecture = str(header.values.get("general.architecture", ""))
    config = read_gguf_config(
        Fields(header.values, header.file, f"{architecture}."),
        architecture,
        vocabulary_size=len(header.values.get("tokenizer.ggml.tokens", ())),
        tensors=frozenset(header.tensors),
    )
    if _FREQUENCY_DIVISORS not in header.tensors:
        return config
    divisors = tuple(header.numbers(header.tensors[_FREQUENCY_DIVISORS]).tolist())
    return replace(config, rope=replace(config.rope, divisors=divisors))


def _to_torch(numbers: NDArray[Any]) -> Tensor:
    """torch warns of memory that cannot be written to."""
    return torch.from_numpy(numbers if numbers.flags.writeable else numbers.copy())


def _pair_halves(weight: Tensor, head_dim: int) -> Tensor:
    """Rows in the order in which number i of a head is turned with number i + head_dim / 2."""
    heads = weight.reshape(-1, head_dim // 2, 2, *weight.shape[1:])
    return heads.transpose(1, 2).reshape(weight.shape)
