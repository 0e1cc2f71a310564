"""The tokenizer of a Hugging Face folder, and what its other files say of it."""

import json
from pathlib import Path

import pytest

from appliance.errors import CatalogueError
from engines.pytorch.tokenizer import HfTokenizer, load_tokenizer
from tests.engines.pytorch import tiny_tokenizer


def write_config(folder: Path, vocab_size: int, **more: object) -> None:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": vocab_size,
        "num_hidden_layers": 1,
        "max_position_embeddings": 64,
        **sizes,
        **more,
    }
    (folder / "config.json").write_text(json.dumps(config))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_tokenizer.save_byte_level(tmp_path, 60)
    write_config(tmp_path, 60, eos_token_id=5)
    return tmp_path


def load_sentencepiece(folder: Path) -> HfTokenizer:
    tiny_tokenizer.save_sentencepiece(folder)
    write_config(folder, 287)
    return load_tokenizer(folder)


def text_of(tokenizer: HfTokenizer, token_ids: list[int]) -> bytes:
    return b"".join(map(tokenizer.piece, token_ids))


def test_control_tokens_are_found_only_where_asked_for(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    assert tokenizer.control_markers == ("<|user|>", "<|end|>", "<s>")
    assert tokenizer.encode("<|end|>", markers=True) == [58]
    plain = tokenizer.encode("ab<|end|>", markers=False)
    assert 58 not in plain
    assert text_of(tokenizer, plain) == b"abend"
    assert tokenizer.piece(58) == b""


def test_tokens_that_are_not_control_are_found_always_and_are_text(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    for markers in (True, False):
        assert tokenizer.encode("<think>", markers=markers) == [59]
    assert tokenizer.piece(59) == b"<think>"


def test_a_text_is_never_cut_because_the_file_says_so(folder: Path) -> None:
    text = "an ant and a bat"
    tokenizer = load_tokenizer(folder)
    assert text_of(tokenizer, tokenizer.encode(text, markers=True)) == text.encode()


def test_what_other_files_say(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": [3, 4]}')
    tokenizer = load_tokenizer(folder)
    assert tokenizer.vocabulary_size == 60
    assert tokenizer.chat_template == tiny_tokenizer.TEMPLATE
    assert (tokenizer.bos_text, tokenizer.eos_text) == ("<s>", "<|end|>")
    assert tokenizer.adds_bos
    assert tokenizer.closing_ids == ()
    assert [n for n in range(60) if tokenizer.ends_generation(n)] == [3, 4, 5, 58]


def test_the_template_of_its_own_file_comes_first(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("of its own file")
    assert load_tokenizer(folder).chat_template == "of its own file"


def test_of_several_templates_the_default_one_is_taken(folder: Path) -> None:
    templates = [{"name": "rag", "template": "no"}, {"name": "default", "template": "yes"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
    assert load_tokenizer(folder).chat_template == "yes"


def test_sentencepiece_spells_spaces_and_bytes(tmp_path: Path) -> None:
    tokenizer = load_sentencepiece(tmp_path)
    token_ids = tokenizer.encode("a ğ<s>", markers=False)
    assert text_of(tokenizer, token_ids) == " a ğ<s>".encode()
    assert tokenizer.encode("<s>", markers=True) == [1]
    assert tokenizer.adds_bos


def test_rows_that_pad_a_vocabulary_are_no_tokens(folder: Path) -> None:
    write_config(folder, 61)
    assert load_tokenizer(folder).vocabulary_size == 60


@pytest.mark.parametrize("vocab_size", [50, 128])
def test_a_vocabulary_of_another_size_is_refused(folder: Path, vocab_size: int) -> None:
    write_config(folder, vocab_size)
    with pytest.raises(CatalogueError, match=r"tokenizer\.json .*embed_tokens") as refused:
        load_tokenizer(folder)
    assert refused.value.code == "model.vocabulary_mismatch"


def test_control_tokens_without_a_row_are_left_out(folder: Path) -> None:
    """Gemma 3's text models have no row for the token that stands for an image."""
    write_config(folder, 59)
    tokenizer = load_tokenizer(folder)
    assert tokenizer.vocabulary_size == 59
    assert 59 not in tokenizer.encode("<think>", markers=True)


@pytest.mark.parametrize(
    "content",
    [None, "{", "[]", '{"model": {}}', '{"added_tokens": [{}]}', '{"added_tokens": {"a": 1}}'],
)
def test_a_broken_file_is_refused(folder: Path, content: str | None) -> None:
    (folder / "tokenizer.json").unlink()
    if content is not None:
        (folder / "tokenizer.json").write_text(content)
    with pytest.raises(CatalogueError, match=r"tokenizer\.json") as refused:
        load_tokenizer(folder)
    assert refused.value.code == "model.tokenizer_broken"
