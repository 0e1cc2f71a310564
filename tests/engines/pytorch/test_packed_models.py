"""Checkpoints whose matrices are packed give the logits of the numbers that were packed."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from appliance.errors import CatalogueError
from engines.pytorch.kernels.torch_ops import torch_ops
from engines.pytorch.models import load_model
from tests.engines.pytorch import tiny_models
from tests.engines.pytorch.paged_steps import PagedSteps

GROUP = 16
BLOCK = 32
TEXT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38]
# AWQ keeps the outputs 0 to 7 in these nibbles of a word.
AWQ_NIBBLES = (0, 4, 1, 5, 2, 6, 3, 7)

# A matrix [N, K] as the tensors of a file, and as the numbers that those stand for.
Packing: TypeAlias = Callable[[Tensor], tuple[dict[str, Tensor], Tensor]]


def in_4_bits(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers [K, N], zeros and scales [groups, N]."""
    groups = weight.T.reshape(-1, GROUP, len(weight))
    low, high = groups.amin(1), groups.amax(1)
    scales = ((high - low) / 15).half().float()
    zeros = (-low / scales).round().clamp(1, 15)
    numbers = (groups / scales[:, None] + zeros[:, None]).round().clamp(0, 15)
    return numbers.flatten(0, 1).int(), zeros.int(), scales


def unpacked(numbers: Tensor, zeros: Tensor, scales: Tensor) -> Tensor:
    of = torch.arange(len(numbers)) // GROUP
    return ((numbers - zeros[of]) * scales[of]).T


def words(numbers: Tensor, nibbles: tuple[int, ...] = tuple(range(8))) -> Tensor:
    """[..., 8 n] to [..., n]."""
    parts = numbers.unflatten(-1, (-1, 8)).to(torch.int64)
    total = sum(parts[..., place] << 4 * nibble for place, nibble in enumerate(nibbles))
    assert isinstance(total, Tensor)
    return total.to(torch.int32).contiguous()


def gptq(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    numbers, zeros, scales = in_4_bits(weight)
    tensors = {
        "qweight": words(numbers.T).T.contiguous(),
        "qzeros": words(zeros - 1),
        "scales": scales.half(),
        "g_idx": torch.arange(len(numbers), dtype=torch.int32) // GROUP,
    }
    return tensors, unpacked(numbers, zeros, scales)


def gptq_ordered(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """With `desc_act`: the groups' inputs are scattered."""
    order = torch.randperm(weight.shape[1], generator=torch.Generator().manual_seed(0))
    tensors, numbers = gptq(weight[:, order])
    back = order.argsort()
    by_input = words(in_4_bits(weight[:, order])[0][back].T).T.contiguous()
    return tensors | {"qweight": by_input, "g_idx": tensors["g_idx"][back]}, numbers[:, back]


def awq(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    numbers, zeros, scales = in_4_bits(weight)
    tensors = {
        "qweight": words(numbers, AWQ_NIBBLES),
        "qzeros": words(zeros, AWQ_NIBBLES),
        "scales": scales.half(),
    }
    return tensors, unpacked(numbers, zeros, scales)


def fp8_tensor(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    scale = weight.abs().max() / 448
    numbers = (weight / scale).to(torch.float8_e4m3fn)
    tensors = {"weight": numbers, "weight_scale": scale, "input_scale": torch.tensor(1.0)}
    return tensors, numbers.float() * scale


def fp8_channel(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    scales = weight.abs().amax(1, keepdim=True) / 448
    numbers = (weight / scales).to(torch.float8_e4m3fn)
    return {"weight": numbers, "weight_scale": scales}, numbers.float() * scales


def fp8_block(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    height, width = (-(-size // BLOCK) for size in weight.shape)
    scales = torch.rand(height, width, generator=torch.Generator().manual_seed(0)) / 100 + 0.001
    spread = scales.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    spread = spread[: len(weight), : weight.shape[1]]
    numbers = (weight / spread).to(torch.float8_e4m3fn)
    return {"weight": numbers, "weight_scale_inv": scales}, numbers.float() * spread


_4_BITS = {"bits": 4, "group_size": GROUP}
PACKINGS: dict[str, tuple[Packing, dict[str, Any]]] = {
    "awq": (awq, {"quant_method": "awq", **_4_BITS}),
    "gptq": (gptq, {"quant_method": "gptq", **_4_BITS}),
    "gptq-ordered": (gptq_ordered, {"quant_method": "gptq", "desc_act": True, **_4_BITS}),
    "fp8-tensor": (fp8_tensor, {"quant_method": "fp8", "activation_scheme": "static"}),
    "fp8-channel": (
        fp8_channel,
        {"quant_method": "compressed-tensors", "format": "float-quantized"},
    ),
    "fp8-block": (fp8_block, {"quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK]}),
}


def pack(model: Any, folder: Path, packing: Packing, settings: dict[str, Any]) -> None:
    """Save a model with its matrices packed, and give it the numbers that they now stand for."""
    tiny_models.save(model, folder)
    stored = load_file(folder / "model.safetensors")
    own = dict(model.named_parameters())
    for name in [name for name in stored if name.endswith("_proj.weight")]:
        tensors, numbers = packing(stored.pop(name))
        own[name].data = numbers
        stored |= {name.replace("weight", kind): part for kind, part in tensors.items()}
    save_file(stored, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = settings
    (folder / "config.json").write_text(json.dumps(config))


def logits(folder: Path) -> Tensor:
    model = load_model(folder, dtype=torch.float32, device=torch.device("cpu"), ops=torch_ops())
    assert model.weights_bytes == sum(tensor.nbytes for tensor in model.tensors)
    return PagedSteps(model).step({"text": TEXT})["text"]


@pytest.fixture(params=PACKINGS)
def packing(request: pytest.FixtureRequest) -> Iterator[tuple[Packing, dict[str, Any]]]:
    yield PACKINGS[request.param]


def test_packed_matrices(packing: tuple[Packing, dict[str, Any]], tmp_path: Path) -> None:
    model = tiny_models.make("llama-biased")
    pack(model, tmp_path, *packing)
    expected = tiny_models.logits_of(model, TEXT)
    torch.testing.assert_close(logits(tmp_path), expected, atol=1e-4, rtol=0)


def test_a_packed_matrix_of_the_wrong_size_is_named(tmp_path: Path) -> None:
    pack(tiny_models.make("llama2"), tmp_path, *PACKINGS["gptq"])
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"]["group_size"] = 24
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CatalogueError, match=r"q_proj\.qzeros") as refused:
        logits(tmp_path)
    assert refused.value.code == "model.tensor_shape"
