"""Two processes that share a model give the logits of one, and refuse what cannot be shared."""

from pathlib import Path

import pytest
import torch
from torch import multiprocessing

from appliance.errors import ConfigError
from engines.pytorch.layers.shard import Shard
from tests.engines.pytorch import tiny_models
from tests.engines.pytorch.paged_steps import PagedSteps
from tests.engines.pytorch.sharing_processes import TEXT, compute_part, load

NAMES = ["llama-biased", "qwen2-moe", "gemma3"]


def test_two_processes_give_the_logits_of_one(tmp_path: Path) -> None:
    for name in NAMES:
        tiny_models.save(tiny_models.make(name), tmp_path / name)
    multiprocessing.spawn(compute_part, (tmp_path, NAMES), nprocs=2)
    for name in NAMES:
        alone = PagedSteps(load(tmp_path / name)).step({"text": TEXT})["text"]
        for rank in range(2):
            shared = torch.load(tmp_path / f"{name}-{rank}.pt", weights_only=True)
            torch.testing.assert_close(shared, alone, atol=1e-4, rtol=0)


def test_a_part_takes_about_half_of_the_memory(tmp_path: Path) -> None:
    folder = tiny_models.save(tiny_models.make("llama2"), tmp_path)
    alone, part = load(folder), load(folder, Shard(rank=1, size=2))
    embedding = alone.facts.vocabulary_size * alone.facts.hidden_size * 4
    assert part.weights_bytes - embedding < 0.55 * (alone.weights_bytes - embedding)
    assert part.kv_shape(torch.float32).num_kv_heads == 2


def test_heads_that_cannot_be_shared_evenly_are_refused(tmp_path: Path) -> None:
    folder = tiny_models.save(tiny_models.make("llama2"), tmp_path)
    with pytest.raises(ConfigError) as refused:
        load(folder, Shard(rank=0, size=3))
    assert refused.value.code == "engine.not_divisible"
