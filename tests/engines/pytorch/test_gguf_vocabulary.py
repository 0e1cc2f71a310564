"""The vocabulary in a GGUF file gives every text the ids that llama.cpp gives it."""

from collections.abc import Iterator
from pathlib import Path

import llama_cpp.llama_cpp as llama
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.errors import CatalogueError
from engines.llamacpp.library import load_library
from engines.llamacpp.tokenizer import LlamaTokenizer
from engines.pytorch.tokenizer import load_tokenizer
from tests.engines.pytorch.tiny_gguf import write_vocabulary
from tests.small_model import PATH

pytestmark = pytest.mark.model

ASSIGNED = st.characters(max_codepoint=0x1FFFF, exclude_categories=["C"])
FRAGMENTS = [
    "<|im_start|>", "<|im_end|>", "<|im", "<repo_name>", "\n", "\n\n", "  ", "\t", "user", "I'll",
    "DON'T", "ğüşİı", "12345", "HTTPServer", "snake_case", "a/b", "\u00a0",
    " 7", "👩‍👩‍👧‍👦", "...", "!?\n", " 漢字", "e\u0301", "\0", "\r\n",
]  # fmt: skip


class Both:
    """One file's vocabulary as we read it, and as llama.cpp does."""

    def __init__(self, path: Path) -> None:
        load_library()
        params = llama.llama_model_default_params()
        params.vocab_only = True
        self._model = llama.llama_model_load_from_file(str(path).encode(), params)
        self.ours = load_tokenizer(path)
        self.theirs = LlamaTokenizer(self._model)

    def close(self) -> None:
        llama.llama_model_free(self._model)

    def assert_same_ids(self, text: str, *, markers: bool) -> None:
        assert self.ours.encode(text, markers=markers) == self.theirs.encode(text, markers=markers)

    def assert_same_tokens(self) -> None:
        ours, theirs = self.ours, self.theirs
        assert ours.vocabulary_size == theirs.vocabulary_size
        for token_id in range(ours.vocabulary_size):
            assert ours.piece(token_id) == theirs.piece(token_id), token_id
            assert ours.ends_generation(token_id) == theirs.ends_generation(token_id), token_id


@pytest.fixture(scope="module")
def real() -> Iterator[Both]:
    both = Both(PATH)
    yield both
    both.close()


@pytest.fixture(
    scope="module",
    params=[
        "default",
        "gpt-2",
        "llama-bpe",
        "qwen2",
        "tekken",
        "deepseek-coder",
        "deepseek-v3",
        "llama",
    ],
)
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    """Small vocabularies whose merges go across words, so that every split shows."""
    path = tmp_path_factory.mktemp("vocabulary") / f"{request.param}.gguf"
    write_vocabulary(path, request.param)
    both = Both(path)
    yield both
    both.close()


@settings(max_examples=300, deadline=None)
@given(text=st.text(ASSIGNED), markers=st.booleans())
def test_any_text_has_the_same_ids(real: Both, text: str, markers: bool) -> None:
    real.assert_same_ids(text, markers=markers)


@settings(max_examples=200, deadline=None)
@given(parts=st.lists(st.sampled_from(FRAGMENTS)), markers=st.booleans())
def test_markers_and_odd_words_have_the_same_ids(
    real: Both, parts: list[str], markers: bool
) -> None:
    real.assert_same_ids("".join(parts), markers=markers)


@settings(max_examples=100, deadline=None)
@given(parts=st.lists(st.sampled_from(FRAGMENTS) | st.text(ASSIGNED)), markers=st.booleans())
def test_every_way_of_splitting_gives_the_same_ids(
    made: Both, parts: list[str], markers: bool
) -> None:
    made.assert_same_ids("".join(parts), markers=markers)


def test_every_token_is_the_same(real: Both, made: Both) -> None:
    real.assert_same_tokens()
    made.assert_same_tokens()


def test_what_is_said_of_the_whole_is_the_same(real: Both, made: Both) -> None:
    for both in (real, made):
        for fact in (
            "chat_template",
            "bos_text",
            "eos_text",
            "adds_bos",
            "closing_ids",
            "control_markers",
        ):
            assert getattr(both.ours, fact) == getattr(both.theirs, fact), fact


def test_a_long_text_without_a_space_is_no_problem(real: Both) -> None:
    text = "x" * 300_000
    assert b"".join(map(real.ours.piece, real.ours.encode(text, markers=False))) == text.encode()


def test_a_long_conversation_is_tokenised_in_parts(real: Both) -> None:
    turns = "<|im_start|>user\nhi<|im_end|>\n" * 1_000
    parts = list(real.ours.encode_parts(turns, markers=True))
    assert len(parts) > 20
    assert sum(map(len, parts)) == 6_000


def test_an_unknown_way_of_splitting_is_refused(tmp_path: Path) -> None:
    write_vocabulary(tmp_path / "odd.gguf", "made-up")
    with pytest.raises(CatalogueError, match="made-up") as refused:
        load_tokenizer(tmp_path / "odd.gguf")
    assert refused.value.code == "model.tokenizer_unknown"
