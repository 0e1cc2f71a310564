"""Broken model files are refused with what is broken and where, before libllama sees them."""

import ctypes
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import llama_cpp
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.errors import CatalogueError
from engines.llamacpp.gguf_check import Verdict, judge
from engines.llamacpp.gguf_reader import TENSOR_TYPES
from engines.llamacpp.weights import check_file, open_model
from tests.engines.llamacpp.gguf_files import BROKEN, STRING, UINT32, gguf, pair, write


def test_a_sound_file_gives_its_facts(tmp_path: Path) -> None:
    template = "{{ messages }}"
    data = gguf({"x": pair("tokenizer.chat_template", STRING, template)})
    facts = check_file(write(tmp_path / "ğüşİı model.gguf", data))
    assert (facts.architecture, facts.num_blocks, facts.context_length) == ("llama", 1, 64)
    assert (facts.num_heads, facts.num_kv_heads, facts.key_length) == (4, (2,), 8)
    assert facts.kv_bytes_per_token == 1 * 2 * (8 + 8) * 2
    assert facts.vocabulary_size == 32
    assert facts.chat_template == template


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_refused_with_what_and_where(kind: str, tmp_path: Path) -> None:
    make, word = BROKEN[kind]
    verdict = judge(write(tmp_path / "broken.gguf", make()))
    assert verdict.facts is None
    assert verdict.broken is not None
    assert word in verdict.broken.what
    assert 0 <= verdict.broken.offset <= len(make())


@settings(max_examples=300)
@given(st.integers(0, len(gguf()) - 1), st.binary(min_size=1, max_size=9))
def test_any_damage_gives_a_verdict(at: int, damage: bytes) -> None:
    data = bytearray(gguf())
    data[at : at + len(damage)] = damage
    with TemporaryDirectory() as folder:
        verdict = judge(write(Path(folder) / "damaged.gguf", bytes(data)))
    assert (verdict.facts is None) != (verdict.broken is None)


def test_the_check_is_a_program_that_prints_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "cut.gguf", gguf()[:-2048])
    command = [sys.executable, "-m", "engines.llamacpp.gguf_check", str(path)]
    printed = subprocess.run(command, capture_output=True, check=True).stdout
    verdict = msgspec.json.decode(printed, type=Verdict)
    assert verdict == judge(path)
    assert printed.count(b"\n") == 1


def test_a_broken_file_is_a_typed_error_that_names_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "cut.gguf", gguf()[:-2048])
    with pytest.raises(CatalogueError, match=r"cut\.gguf.*larger than the file, at byte") as error:
        check_file(path)
    assert error.value.code == "model.file_broken"


def test_a_file_that_cannot_be_opened_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="No such file") as error:
        check_file(tmp_path / "missing.gguf")
    assert error.value.code == "model.file_unreadable"


def test_a_part_of_a_model_is_refused(tmp_path: Path) -> None:
    data = gguf({"x": pair("split.count", UINT32, 3)})
    with pytest.raises(CatalogueError, match="3 parts") as error:
        check_file(write(tmp_path / "part.gguf", data))
    assert error.value.code == "model.file_split"


def test_a_sound_file_that_libllama_refuses_is_a_typed_error(tmp_path: Path) -> None:
    path = write(tmp_path / "strange.gguf", gguf())
    check_file(path)
    with pytest.raises(CatalogueError, match=r"llama\.cpp does not open") as error:
        open_model(path)
    assert error.value.code == "model.file_refused"


def test_tensor_sizes_are_those_of_the_library() -> None:
    folder = Path(llama_cpp.__file__).parent / "lib"
    library = ctypes.CDLL(str(folder / "libggml-base.so"))
    library.ggml_type_size.restype = ctypes.c_size_t
    library.ggml_blck_size.restype = ctypes.c_int64
    for number, (elements, num_bytes) in TENSOR_TYPES.items():
        assert library.ggml_blck_size(number) == elements
        assert library.ggml_type_size(number) == num_bytes


@pytest.mark.model
def test_the_real_model_is_sound(model_path: Path) -> None:
    facts = check_file(model_path)
    assert (facts.num_blocks, facts.context_length) == (30, 8192)
    assert facts.kv_bytes_per_token == 30 * 3 * (64 + 64) * 2
