"""A writer of BERT models for embeddings, and a tiny one with weights drawn from a fixed seed."""

from pathlib import Path
from typing import TypeAlias

import numpy as np
from gguf import GGUFWriter, PoolingType, TokenType
from msgspec import Struct
from numpy.typing import NDArray

CONTEXT_TOKENS = 64
SIZE = 32
MEAN, CLS, RANK = PoolingType.MEAN, PoolingType.CLS, PoolingType.RANK
WORDS = ("the", "gold", "of", "north", "south", "snow", "sea", "ship", "a", "b")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CLS_ID, SEP_ID = 2, 3
_NUM_BLOCKS = 2
_FFN = 64

Tensors: TypeAlias = dict[str, NDArray[np.float32]]


class Bert(Struct, frozen=True, kw_only=True):
    """A model: its vocabulary as `vocab.txt` has it, its tensors by their names in GGUF."""

    name: str
    vocabulary: tuple[str, ...]
    tensors: Tensors
    num_blocks: int
    num_heads: int
    context_tokens: int
    pooling: PoolingType | None = MEAN


def write_bert(path: Path, bert: Bert) -> None:
    """Write a model as a GGUF file."""
    writer = GGUFWriter(path, "bert")
    _add_network(writer, bert)
    _add_vocabulary(writer, bert.vocabulary)
    for name, values in bert.tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tiny_bert(pooling: PoolingType | None = MEAN) -> Bert:
    """A model of two blocks that knows a few words."""
    return Bert(
        name="tiny",
        vocabulary=SPECIAL + WORDS,
        tensors=_drawn_tensors(),
        num_blocks=_NUM_BLOCKS,
        num_heads=4,
        context_tokens=CONTEXT_TOKENS,
        pooling=pooling,
    )


def _add_network(writer: GGUFWriter, bert: Bert) -> None:
    writer.add_name(bert.name)
    writer.add_block_count(bert.num_blocks)
    writer.add_context_length(bert.context_tokens)
    writer.add_embedding_length(bert.tensors["token_embd.weight"].shape[1])
    writer.add_feed_forward_length(bert.tensors["blk.0.ffn_up.weight"].shape[0])
    writer.add_head_count(bert.num_heads)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    if bert.pooling is not None:
        writer.add_pooling_type(bert.pooling)


def _add_vocabulary(writer: GGUFWriter, vocabulary: tuple[str, ...]) -> None:
    at = vocabulary.index
    writer.add_tokenizer_model("bert")
    writer.add_token_type_count(2)
    writer.add_token_list([_to_piece(token) for token in vocabulary])
    writer.add_token_types(
        [TokenType.CONTROL if token in SPECIAL else TokenType.NORMAL for token in vocabulary]
    )
    writer.add_pad_token_id(at("[PAD]"))
    writer.add_unk_token_id(at("[UNK]"))
    writer.add_bos_token_id(at("[CLS]"))
    writer.add_sep_token_id(at("[SEP]"))
    writer.add_mask_token_id(at("[MASK]"))


def _to_piece(token: str) -> str:
    """WordPiece marks what goes on inside a word; llama.cpp what begins one."""
    if token.startswith("[") and token.endswith("]"):
        return token
    return token[2:] if token.startswith("##") else f"\u2581{token}"


def _drawn_tensors() -> Tensors:
    draw = np.random.default_rng(7)

    def weight(*shape: int) -> NDArray[np.float32]:
        return draw.normal(0, 0.3, shape).astype(np.float32)

    tensors = {
        "token_embd.weight": weight(len(SPECIAL + WORDS), SIZE),
        "token_types.weight": weight(2, SIZE),
        "position_embd.weight": weight(CONTEXT_TOKENS, SIZE),
        **_norm("token_embd_norm"),
    }
    for block in range(_NUM_BLOCKS):
        at = f"blk.{block}"
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensors |= {
                f"{at}.{name}.weight": weight(SIZE, SIZE),
                f"{at}.{name}.bias": weight(SIZE),
            }
        tensors |= {f"{at}.ffn_up.weight": weight(_FFN, SIZE), f"{at}.ffn_up.bias": weight(_FFN)}
        tensors |= {
            f"{at}.ffn_down.weight": weight(SIZE, _FFN),
            f"{at}.ffn_down.bias": weight(SIZE),
        }
        tensors |= {**_norm(f"{at}.attn_output_norm"), **_norm(f"{at}.layer_output_norm")}
    return tensors


def _norm(name: str) -> Tensors:
    return {
        f"{name}.weight": np.ones(SIZE, np.float32),
        f"{name}.bias": np.zeros(SIZE, np.float32),
    }
