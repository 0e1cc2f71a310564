"""A tokenizer of as many tokens as the tiny models have, as a Hugging Face folder holds it."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
TEMPLATE = "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}<|bot|>"


def save_byte_level(folder: Path, num_tokens: int) -> None:
    """Letters, pairs of them, and three control tokens at the end; BOS before every text."""
    texts = [*_LETTERS, "Ġ", *(f"a{letter}" for letter in _LETTERS), *(f"b{x}" for x in _LETTERS)]
    texts = texts[: num_tokens - 4]
    merges = [(text[0], text[1]) for text in texts if len(text) == 2]
    bpe = Tokenizer(BPE(vocab={text: n for n, text in enumerate(texts)}, merges=merges))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens([AddedToken(text) for text in ("<s>", "<|user|>", "<|end|>")])
    bpe.add_tokens([AddedToken("<think>")])
    bpe.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair=None, special_tokens=[("<s>", bpe.token_to_id("<s>"))]
    )
    bpe.enable_truncation(4)
    bpe.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": {"content": "<|end|>"}, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def save_sentencepiece(folder: Path) -> None:
    """Letters and bytes, a space before every text, the way Llama 2's file says it."""
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "▁", *_LETTERS, "▁a"]
    bpe = Tokenizer(
        BPE(
            vocab={text: n for n, text in enumerate(texts)},
            merges=[("▁", "a")],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefixed = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    bpe.normalizer = normalizers.Sequence(prefixed)
    bpe.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback()])
    bpe.add_special_tokens([AddedToken(text, normalized=False) for text in texts[:3]])
    bpe.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def save_ascii(folder: Path) -> int:
    """Printable ASCII characters, a line feed, four control tokens: how many tokens that are."""
    characters = ["Ċ", "Ġ", *map(chr, range(0x21, 0x7F))]
    bpe = Tokenizer(BPE(vocab={text: n for n, text in enumerate(characters)}, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    control = ("<s>", "<|user|>", "<|end|>", "<|bot|>")
    bpe.add_special_tokens([AddedToken(text) for text in control])
    bpe.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair=None, special_tokens=[("<s>", bpe.token_to_id("<s>"))]
    )
    bpe.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "<|end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return bpe.get_vocab_size()
