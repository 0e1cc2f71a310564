"""Folders and files that are not what they say are refused before anything is served."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from safetensors.torch import load_file, save_file

from appliance.errors import CatalogueError, HisarError
from engines.pytorch.kernels.torch_ops import torch_ops
from engines.pytorch.models import Model, load_model
from tests.engines.pytorch import tiny_models

WEIGHTS = "model.safetensors"
QUERIES = "model.layers.1.self_attn.q_proj.weight"


def load(path: Path) -> Model:
    return load_model(path, dtype=torch.float32, device=torch.device("cpu"), ops=torch_ops())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_models.save(tiny_models.make("llama2"), tmp_path / "tiny")


def refusal(path: Path) -> HisarError:
    with pytest.raises(CatalogueError) as refused:
        load(path)
    return refused.value


def change_config(folder: Path, **settings: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    folder = tiny_models.save(tiny_models.make("llama2"), tmp_path, max_shard_size="40KB")
    assert load(folder).weights_bytes > 0
    part = sorted(folder.glob("model-*.safetensors"))[1]
    part.unlink()
    error = refusal(folder)
    assert error.code == "model.part_missing"
    assert part.name in error.message


def test_a_part_that_is_not_the_one_the_index_means_is_named(tmp_path: Path) -> None:
    folder = tiny_models.save(tiny_models.make("llama2"), tmp_path, max_shard_size="40KB")
    first, second, *_ = sorted(folder.glob("model-*.safetensors"))
    second.write_bytes(first.read_bytes())
    error = refusal(folder)
    assert error.code == "model.tensor_missing"
    assert second.name in error.message


def test_an_index_may_not_reach_out_of_its_folder(folder: Path) -> None:
    index = {"weight_map": {QUERIES: "../elsewhere.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert refusal(folder).code == "model.config_invalid"


def test_a_tensor_of_the_wrong_shape_is_named(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.update({QUERIES: torch.zeros(48, 48)}))
    error = refusal(folder)
    assert error.code == "model.tensor_shape"
    assert f"{WEIGHTS}: the tensor {QUERIES} has the shape [48, 48], not [64, 48]" in error.message


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_numbers_that_are_not_finite_are_refused(folder: Path, number: float) -> None:
    def poison(tensors: dict[str, torch.Tensor]) -> None:
        tensors[QUERIES][3, 5] = number

    change_tensors(folder, poison)
    error = refusal(folder)
    assert error.code == "model.tensor_not_finite"
    assert WEIGHTS in error.message
    assert QUERIES in error.message


def test_a_tensor_that_is_not_there_is_named(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.__delitem__(QUERIES))
    error = refusal(folder)
    assert error.code == "model.tensor_missing"
    assert WEIGHTS in error.message
    assert "layers.1.self_attn.q_proj.weight" in error.message


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"num_hidden_layers": 2}, "model.tensor_unexpected"),
        ({"num_hidden_layers": 4}, "model.tensor_missing"),
        ({"attention_bias": True}, "model.tensor_missing"),
        ({"num_key_value_heads": 2}, "model.tensor_shape"),
        ({"vocab_size": 200}, "model.tensor_shape"),
        ({"intermediate_size": 65}, "model.tensor_shape"),
        ({"num_key_value_heads": 3}, "model.config_invalid"),
        ({"num_hidden_layers": "three"}, "model.config_invalid"),
        ({"num_attention_heads": -4}, "model.config_invalid"),
        ({"hidden_size": None}, "model.config_invalid"),
        ({"rms_norm_eps": "small"}, "model.config_invalid"),
        ({"hidden_act": "relu"}, "model.config_invalid"),
        ({"rope_parameters": {"rope_type": "spiral"}}, "model.config_invalid"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 0}}, "model.config_invalid"),
        ({"rope_parameters": {"rope_theta": 0}}, "model.config_invalid"),
        ({"rope_parameters": {"partial_rotary_factor": 2.0}}, "model.config_invalid"),
        ({"layer_types": ["linear_attention"] * 3}, "model.config_invalid"),
        ({"layer_types": [[], {}, None]}, "model.config_invalid"),
        ({"num_hidden_layers": 10**12}, "model.config_invalid"),
        ({"architectures": ["MambaForCausalLM"]}, "model.architecture_unknown"),
        ({"architectures": []}, "model.config_invalid"),
        ({"quantization_config": {"quant_method": "aqlm"}}, "model.quantization_unknown"),
    ],
)
def test_a_config_that_disagrees_with_the_weights(
    folder: Path, settings: dict[str, Any], code: str
) -> None:
    change_config(folder, **settings)
    error = refusal(folder)
    assert error.code == code
    assert "config" in error.message or "tensor" in error.message


def test_an_architecture_that_is_not_known_is_told_with_those_that_are(folder: Path) -> None:
    change_config(folder, architectures=["MambaForCausalLM"])
    error = refusal(folder)
    assert "MambaForCausalLM" in error.message
    assert "LlamaForCausalLM" in error.hint


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe"])
def test_a_config_that_cannot_be_read(folder: Path, content: bytes) -> None:
    (folder / "config.json").write_bytes(content)
    error = refusal(folder)
    assert error.code == "model.config_invalid"
    assert "config.json" in error.message


class Malicious:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_is_refused_and_not_opened(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    trace = folder / "was-here"
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Malicious(trace)))
    for path in (folder, folder / "pytorch_model.bin"):
        error = refusal(path)
        assert error.code == "model.pickle_refused"
        assert "pytorch_model.bin" in error.message
    assert not trace.exists()


def test_a_folder_without_weights(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    assert refusal(folder).code == "model.part_missing"


@pytest.mark.parametrize("num_bytes", [4, 1000])
def test_a_file_that_ends_early(folder: Path, num_bytes: int) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:num_bytes])
    error = refusal(folder)
    assert error.code == "model.file_broken"
    assert WEIGHTS in error.message


def test_a_gguf_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(60))
    error = refusal(tmp_path / "model.gguf")
    assert error.code == "model.file_broken"
    assert "model.gguf" in error.message


def test_a_gguf_file_whose_tensors_are_not_those_of_its_header(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_head_count(2)
    writer.add_feed_forward_length(8)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list(["a", "b"])
    writer.add_tensor("token_embd.weight", np.zeros((3, 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    error = refusal(path)
    assert error.code == "model.tensor_shape"
    assert "model.gguf: the tensor token_embd.weight" in error.message
