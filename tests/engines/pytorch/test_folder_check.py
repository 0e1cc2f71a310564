"""What a Hugging Face folder says before it is loaded: its facts, or what is wrong with it."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.catalogue import Library
from appliance.errors import CatalogueError
from appliance.pull import Order, pull
from appliance.weights_check import check_weights
from engines.pytorch.folder_check import judge

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 50,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}
SHAPES = ([50, 32], [32])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    for number, shape in enumerate(SHAPES):
        num_bytes = 2 * math.prod(shape)
        entry = {"dtype": "BF16", "shape": shape, "data_offsets": [0, num_bytes]}
        header = json.dumps({"__metadata__": {"a": "b"}, str(number): entry}).encode()
        path = folder / f"model-{number}.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(num_bytes))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def test_the_facts_are_told(folder: Path) -> None:
    facts = check_weights(folder)
    assert facts.context_length == 128
    assert facts.kv_bytes_per_token == 2 * 3 * 2 * 8 * 2
    assert facts.num_weights == 50 * 32 + 32


def test_they_are_noted_when_the_folder_comes_in(folder: Path, tmp_path: Path) -> None:
    spec = pull(Library(tmp_path / "models"), Order(name="m", source=f"file:{folder}"))
    assert (spec.runner, spec.main_file) == ("pytorch", "")
    assert (spec.trained_tokens, spec.num_weights) == (128, 1632)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("config.json", b"{", "config.json is not JSON"),
        ("config.json", b'{"architectures": ["FlurbForCausalLM"]}', "FlurbForCausalLM"),
        ("model-1.safetensors", b"\xff" * 64, "model-1.safetensors"),
        ("model-1.safetensors", b"\x02\0\0\0\0\0\0\0[]", "model-1.safetensors"),
        ("model-0.safetensors", b"", "model-0.safetensors"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, name: str, content: bytes, complaint: str) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(CatalogueError, match=complaint) as refused:
        check_weights(folder)
    assert refused.value.code == "model.file_broken"


def test_files_that_are_not_there_are_named(folder: Path) -> None:
    places = {"0": "model-0.safetensors", "1": "model-1.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (folder / "consolidated.safetensors").write_bytes((folder / places["0"]).read_bytes())
    assert check_weights(folder).num_weights == 50 * 32 + 32
    (folder / places["1"]).unlink()
    with pytest.raises(CatalogueError, match=r"model-1\.safetensors, one of 2 parts"):
        check_weights(folder)


def test_a_folder_without_a_tokenizer_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CatalogueError, match=r"has no tokenizer\.json"):
        check_weights(folder)


def test_a_file_that_ends_early_is_refused(folder: Path) -> None:
    path = folder / "model-0.safetensors"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(CatalogueError, match=r"model-0\.safetensors ends early: 7 bytes"):
        check_weights(folder)


def test_a_shape_that_is_not_one_is_a_broken_header(folder: Path) -> None:
    header = b'{"a": {"shape": ["x", 2]}}'
    content = len(header).to_bytes(8, "little") + header
    (folder / "model-0.safetensors").write_bytes(content)
    assert judge(folder).broken is not None


def test_it_needs_no_torch() -> None:
    program = "import sys, engines.pytorch.folder_check; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
