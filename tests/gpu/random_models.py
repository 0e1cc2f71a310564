"""Models of real shapes and random weights: the speed of a model does not depend on its numbers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import BPE
from torch import Tensor

from engines.pytorch.model_config import LayerConfig, ModelConfig, RopeConfig
from engines.pytorch.models import Model, build_model
from engines.pytorch.runner import TorchRunner, start
from engines.runner import RunnerOptions
from tests.gpu.machine import Machine

_STD: Final = 0.02
# Embeddings so much larger outweigh what layers add: the likeliest token is the last one again.
_COPYING: Final = 50.0
# Where it is, the folder is whole.
_LAST_FILE: Final = "tokenizer_config.json"
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_QWEN3_600M: Final = {
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40_960,
}
_TINY: Final = {
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
}


def small_model_folder(machine: Machine, *, copies: bool = False) -> Path:
    """A model of 0.6 billion numbers as a Hugging Face folder; both kinds are written at once.

    With `copies` its likeliest token is the one before, so that it repeats itself.
    """
    folder, copying = machine.folder / "random", machine.folder / "copying"
    if not (copying / _LAST_FILE).is_file():
        for path, scale in ((folder, 1.0), (copying, _COPYING)):
            _write_model(machine, path, scale)
            _write_tokenizer(path, small_vocabulary(machine))
    return copying if copies else folder


def small_vocabulary(machine: Machine) -> int:
    """How many tokens the small model has."""
    return (_TINY if machine.is_small else _QWEN3_600M)["vocab_size"]


def start_small(
    machine: Machine, *, num_slots: int, context_tokens: int, copies: bool = False
) -> TorchRunner:
    """The engine with the small model."""
    return start(small_options(machine, num_slots, context_tokens, copies=copies))


def small_options(
    machine: Machine,
    num_slots: int,
    context_tokens: int,
    *,
    copies: bool = False,
    deterministic: bool = False,
) -> RunnerOptions:
    """How the engine is started with it."""
    return RunnerOptions(
        model="random",
        path=small_model_folder(machine, copies=copies),
        num_slots=num_slots,
        context_tokens=context_tokens,
        deterministic=deterministic,
    )


def build_large(machine: Machine) -> Model:
    """A model of 8 billion numbers, as Llama 3 is built; made on the device, never on disk."""
    size = machine.size
    config = ModelConfig(
        family="llama",
        architecture="LlamaForCausalLM",
        vocabulary_size=size(128_256, 64),
        hidden_size=size(4096, 32),
        intermediate_size=size(14_336, 64),
        num_heads=size(32, 4),
        num_kv_heads=size(8, 2),
        head_dim=size(128, 16),
        context_length=8192,
        norm_eps=1e-5,
        layers=(LayerConfig(),) * size(32, 2),
        rope=RopeConfig(theta=500_000.0),
        attention_scale=size(128, 16) ** -0.5,
    )
    return build_model(
        config,
        _Drawn(config, machine.device),
        dtype=machine.dtype,
        device=machine.device,
        ops=machine.ops,
    )


class _Drawn:
    """The WeightSource of a Llama whose numbers are drawn when they are asked for."""

    label = "random weights"

    def __init__(self, config: ModelConfig, device: torch.device) -> None:
        self.shapes: Mapping[str, tuple[int, ...]] = _llama_shapes(config)
        self._device = device

    def file_of(self, name: str) -> str:
        """What a tensor is called in messages."""
        return name

    def read(self, name: str, part: tuple[slice, ...]) -> Tensor:
        """The part of a tensor, on the device, where it stays."""
        drawn = torch.empty(self.shapes[name], dtype=torch.bfloat16, device=self._device)
        return drawn.normal_(std=_STD)[part] if part else drawn.normal_(std=_STD)


def _llama_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = (n * config.head_dim for n in (config.num_heads, config.num_kv_heads))
    of_layer = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    return {
        "embed_tokens.weight": (config.vocabulary_size, hidden),
        "lm_head.weight": (config.vocabulary_size, hidden),
        "norm.weight": (hidden,),
        **{
            f"layers.{number}.{name}.weight": shape
            for number in range(len(config.layers))
            for name, shape in of_layer.items()
        },
    }


def _write_model(machine: Machine, folder: Path, embedding_scale: float) -> None:
    import transformers

    sizes: dict[str, Any] = _TINY if machine.is_small else _QWEN3_600M
    config = transformers.Qwen3Config(**sizes, tie_word_embeddings=True, initializer_range=_STD)
    torch.manual_seed(0)
    with torch.device(machine.device), torch.no_grad():
        model = transformers.AutoModelForCausalLM.from_config(config)
        model.get_input_embeddings().weight.mul_(embedding_scale)
    model.to(machine.dtype).save_pretrained(folder)


def _write_tokenizer(folder: Path, num_tokens: int) -> None:
    """Its tokens are words of letters."""
    bpe = Tokenizer(BPE(vocab={_word(number): number for number in range(num_tokens)}, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.save(str(folder / "tokenizer.json"))
    (folder / _LAST_FILE).write_text(json.dumps({}))


def _word(number: int) -> str:
    """Numbers as words, each another: a, b, ... z, aa, ab, ..."""
    letters = ""
    while number >= 0:
        letters = _LETTERS[number % len(_LETTERS)] + letters
        number = number // len(_LETTERS) - 1
    return letters
