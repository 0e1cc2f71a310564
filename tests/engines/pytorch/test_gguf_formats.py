"""Every format that a GGUF file's tensors come in is unpacked to the numbers ggml makes of it."""

import struct
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter
from numpy.typing import NDArray

from appliance.errors import CatalogueError
from engines.pytorch.gguf_header import GgufHeader
from tests.engines.pytorch import ggml_formats

KINDS = (
    Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0, Kind.Q2_K,
    Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K, Kind.IQ4_NL, Kind.IQ4_XS, Kind.IQ3_S, Kind.IQ3_XXS,
    Kind.IQ2_S, Kind.IQ2_XS, Kind.IQ2_XXS, Kind.IQ1_S, Kind.IQ1_M, Kind.MXFP4,
)  # fmt: skip
WIDTH = 512
NUMBERS = np.random.default_rng(11).normal(0, 0.1, (6, WIDTH)).astype(np.float32)


@pytest.fixture(scope="module")
def packed() -> dict[Kind, NDArray[np.uint8]]:
    return {kind: ggml_formats.pack(NUMBERS, kind) for kind in KINDS}


@pytest.fixture(scope="module")
def header(
    packed: dict[Kind, NDArray[np.uint8]], tmp_path_factory: pytest.TempPathFactory
) -> GgufHeader:
    """Of a file with a tensor in each format, called by its name."""
    return GgufHeader(write(packed, tmp_path_factory.mktemp("formats") / "formats.gguf"))


def write(packed: dict[Kind, NDArray[np.uint8]], path: Path) -> Path:
    writer = GGUFWriter(path, "llama")
    for kind, rows in packed.items():
        writer.add_tensor(kind.name, rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_tensor_is_what_ggml_makes_of_it(
    header: GgufHeader, packed: dict[Kind, NDArray[np.uint8]], kind: Kind
) -> None:
    expected = ggml_formats.unpack(packed[kind], kind, WIDTH)
    tensor = header.tensors[kind.name]
    np.testing.assert_array_equal(header.numbers(tensor), expected)
    np.testing.assert_array_equal(header.numbers(tensor, (slice(2, 4),)), expected[2:4])


def test_a_format_that_the_unpacking_does_not_know_is_told_with_its_tensor(tmp_path: Path) -> None:
    odd = {Kind.Q8_K: np.zeros((6, WIDTH // 256 * 292), np.uint8)}
    header = GgufHeader(write(odd, tmp_path / "odd.gguf"))
    with pytest.raises(CatalogueError, match=r"odd\.gguf: the tensor Q8_K") as refused:
        header.numbers(header.tensors["Q8_K"])
    assert refused.value.code == "model.quantization_unknown"


@pytest.mark.parametrize(
    ("number", "code"), [(42, "model.quantization_unknown"), (99, "model.file_broken")]
)
def test_a_format_without_a_name_is_told_with_its_tensor(
    tmp_path: Path, number: int, code: str
) -> None:
    """42 is a format of ggml's that the gguf package does not know, 99 one of nobody's."""
    path = write({Kind.Q8_0: ggml_formats.pack(NUMBERS, Kind.Q8_0)}, tmp_path / "odd.gguf")
    shape = b"Q8_0" + struct.pack("<I2Q", 2, WIDTH, len(NUMBERS))
    known, new = (shape + struct.pack("<I", value) for value in (Kind.Q8_0, number))
    content = path.read_bytes()
    assert known in content
    path.write_bytes(content.replace(known, new))
    with pytest.raises(CatalogueError, match=r"odd\.gguf.*Q8_0") as refused:
        GgufHeader(path)
    assert refused.value.code == code
