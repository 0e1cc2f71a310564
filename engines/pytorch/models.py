"""A model from its files to something that computes logits."""

import importlib
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from appliance.errors import CatalogueError
from engines.context_tokens import choose_context_tokens
from engines.pytorch.hf_config import read_hf_config
from engines.pytorch.ingredients import Ingredients
from engines.pytorch.kv_cache import KvShape, LayerCache
from engines.pytorch.layers.rotation import angle_tables
from engines.pytorch.layers.shard import ALONE, Shard
from engines.pytorch.model_config import ModelConfig, RopeConfig
from engines.pytorch.ops import Ops
from engines.pytorch.safetensors_folder import SafetensorsFolder
from engines.pytorch.step_inputs import StepInputs
from engines.pytorch.weights import WeightLoader, WeightSource


class Network(Protocol):
    """What an architecture makes of its layers."""

    def forward(self, inputs: StepInputs, cache: tuple[LayerCache, ...]) -> Tensor:
        """Logits of the rows that are wanted, float32 [R, vocabulary]."""


class Model:
    """One model on one device.

    `facts` is what it is made of; `tensors` are its weights, which may leave the device and come
    back where they were; `weights_bytes` is what they take.
    """

    def __init__(self, network: Network, facts: ModelConfig, weights: WeightLoader) -> None:
        self.facts = facts
        self.tensors = tuple(weights.tensors)
        self.weights_bytes = weights.num_bytes
        self._network = network
        self._num_kv_heads = weights.shard.share(facts.num_kv_heads)

    def forward(self, inputs: StepInputs, cache: tuple[LayerCache, ...]) -> Tensor:
        """Logits of the rows that are wanted, float32 [R, vocabulary]."""
        return self._network.forward(inputs, cache)

    def kv_shape(self, dtype: torch.dtype) -> KvShape:
        """What a token takes in a cache of that type, of this shard's heads."""
        return KvShape(
            num_layers=len(self.facts.layers),
            num_kv_heads=self._num_kv_heads,
            head_dim=self.facts.head_dim,
            dtype=dtype,
        )


def load_model(
    path: Path,
    *,
    dtype: torch.dtype,
    device: torch.device,
    ops: Ops,
    num_tokens: int = 0,
    context_tokens: int = 0,
    shard: Shard = ALONE,
) -> Model:
    """The model in a Hugging Face folder or a GGUF file, checked whole before it is returned.

    - `num_tokens`: how many rows of the vocabulary are tokens; 0: all
    - `context_tokens`: how many positions will be used; 0: as many as suit the model
    - `shard`: the part of every layer that is computed here

    Raises CatalogueError: `model.part_missing`, `model.pickle_refused`, `model.file_broken`,
    `model.config_invalid`, `model.architecture_unknown`, `model.quantization_unknown`,
    `model.tensor_missing`, `model.tensor_shape`, `model.tensor_unexpected`,
    `model.tensor_not_finite`; and ConfigError `engine.context_too_long`.
    """
    config, source = _open(path)
    return build_model(
        config,
        source,
        dtype=dtype,
        device=device,
        ops=ops,
        num_tokens=num_tokens,
        context_tokens=context_tokens,
        shard=shard,
    )


def build_model(
    config: ModelConfig,
    source: WeightSource,
    *,
    dtype: torch.dtype,
    device: torch.device,
    ops: Ops,
    num_tokens: int = 0,
    context_tokens: int = 0,
    shard: Shard = ALONE,
) -> Model:
    """The model of that configuration, its weights from any source; otherwise as `load_model`."""
    weights = WeightLoader(
        source, dtype=dtype, device=device, shard=shard, quantization=config.quantization
    )
    num_positions = choose_context_tokens(context_tokens, config.context_length)

    def angles(rope: RopeConfig) -> tuple[Tensor, Tensor]:
        return _finite(angle_tables(rope, config.head_dim, num_positions, device))

    made_of = Ingredients(
        config=config,
        weights=weights,
        ops=ops,
        num_tokens=num_tokens or config.vocabulary_size,
        angles=angles(config.rope),
        local_angles=angles(config.local_rope) if config.local_rope else None,
    )
    load = importlib.import_module(f"engines.pytorch.architectures.{config.family}").load
    network: Network = load(made_of)
    weights.finish(_ignored(config))
    return Model(network, config, weights)


def _finite(angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Raises CatalogueError `model.config_invalid` for settings that give no angles."""
    if not all(bool(table.isfinite().all()) for table in angles):
        message = "how positions become angles (rope) is set so that some have no finite value"
        raise CatalogueError("model.config_invalid", message)
    return angles


def _ignored(config: ModelConfig) -> tuple[str, ...]:
    """Ends of names of tensors that may be there and are not needed."""
    tied = ("lm_head.weight",) if config.is_tied else ()
    # Products with packed weights take their inputs as they are.
    return (*tied, ".input_scale", ".k_scale", ".v_scale") if config.quantization else tied


def _open(path: Path) -> tuple[ModelConfig, WeightSource]:
    if path.is_dir():
        return read_hf_config(path), SafetensorsFolder(path)
    if path.suffix in (".bin", ".pt", ".pth", ".ckpt"):
        message = f"{path.name} is a pickle, which can run any code when it is opened"
        raise CatalogueError("model.pickle_refused", message)
    from engines.pytorch.gguf_header import GgufHeader
    from engines.pytorch.gguf_weights import GgufWeights

    gguf = GgufWeights(GgufHeader(path))
    return gguf.config, gguf
