"""Small GGUF files: vocabularies that were trained on a few lines."""

import json
from pathlib import Path

from gguf import GGUFWriter, TokenType
from tokenizers import Tokenizer, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE

_LINES = [
    "The HTTPServer isn't up; I'll say DON'T, they've 12345 and 7 of a/b!?\n\n",
    "snake_case  and\ttabs,   spaces ... 漢字かな ğüşİı e\u0301 \u00a0 \r\n user's <|im",
    "DON'T you're we've 1234567 12 345 ..., ((a+b)) == c  \n  \n x\n",
]
_CONTROL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
_DEFINED = ["<repo_name>", "  "]


def write_vocabulary(path: Path, pre: str) -> None:
    """A vocabulary split as `pre` says; sentencepiece's where that is "llama"."""
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(0)
    if pre == "llama":
        _add_sentencepiece(writer)
    else:
        _add_byte_level(writer, pre)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _trained(bpe: Tokenizer, alphabet: list[str]) -> tuple[list[str], list[str]]:
    """Tokens in the order of their merges, and the merges; nothing splits words before."""
    trainer = trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=alphabet, show_progress=False, special_tokens=_CONTROL
    )
    bpe.train_from_iterator(_LINES * 4, trainer)
    ids = bpe.get_vocab()
    merges = json.loads(bpe.to_str())["model"]["merges"]
    return sorted(ids, key=lambda text: ids[text]), [" ".join(pair) for pair in merges]


def _add_byte_level(writer: GGUFWriter, pre: str) -> None:
    bpe = Tokenizer(BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokens, merges = _trained(bpe, pre_tokenizers.ByteLevel.alphabet())
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    _add_tokens(writer, tokens, [])
    writer.add_token_merges(merges)


def _add_sentencepiece(writer: GGUFWriter) -> None:
    bpe = Tokenizer(BPE())
    bpe.normalizer = normalizers.Replace(" ", "▁")
    tokens, _ = _trained(bpe, [])
    writer.add_tokenizer_model("llama")
    _add_tokens(writer, tokens, [f"<0x{byte:02X}>" for byte in range(256)])
    count = len(tokens) + 256 + len(_DEFINED)
    writer.add_token_scores([-float(number) for number in range(count)])


def _add_tokens(writer: GGUFWriter, trained: list[str], byte_tokens: list[str]) -> None:
    kinds = [TokenType.CONTROL if text in _CONTROL else TokenType.NORMAL for text in trained]
    kinds += [TokenType.BYTE] * len(byte_tokens) + [TokenType.USER_DEFINED] * len(_DEFINED)
    writer.add_token_list([*trained, *byte_tokens, *_DEFINED])
    writer.add_token_types(kinds)
