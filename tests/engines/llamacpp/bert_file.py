"""A writer of tiny BERT models for embeddings, with weights drawn from a fixed seed."""

import struct

import numpy as np
from numpy.typing import NDArray

from tests.engines.llamacpp.gguf_files import (
    BOOL,
    FLOAT32,
    INT32,
    STRING,
    UINT32,
    array,
    pair,
    text,
)

CONTEXT_TOKENS = 64
SIZE = 32
MEAN, CLS, RANK = 1, 2, 4
WORDS = ("the", "gold", "of", "north", "south", "snow", "sea", "ship", "a", "b")
VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"\u2581{word}" for word in WORDS))
CLS_ID, SEP_ID = 2, 3
_NUM_BLOCKS = 2
_FFN = 64

Tensors = dict[str, NDArray[np.float32]]


def bert(pooling: int | None = MEAN) -> bytes:
    """The bytes of a GGUF file."""
    pairs, tensors = _pairs(pooling), _tensors()
    table, data = b"", b""
    for name, values in tensors.items():
        dims = struct.pack(f"<I{values.ndim}Q", values.ndim, *reversed(values.shape))
        table += text(name) + dims + struct.pack("<IQ", 0, len(data))
        data += values.tobytes()
        data += bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + table
    return head + bytes(-len(head) % 32) + data


def _pairs(pooling: int | None) -> list[bytes]:
    numbers = {
        "block_count": _NUM_BLOCKS,
        "context_length": CONTEXT_TOKENS,
        "embedding_length": SIZE,
        "feed_forward_length": _FFN,
        "attention.head_count": 4,
    }
    if pooling is not None:
        numbers["pooling_type"] = pooling
    special = {
        "unknown_token_id": 1,
        "bos_token_id": CLS_ID,
        "seperator_token_id": SEP_ID,
        "padding_token_id": 0,
        "mask_token_id": 4,
        "token_type_count": 2,
    }
    kinds = [3] * 5 + [1] * len(WORDS)
    return [
        pair("general.architecture", STRING, "bert"),
        pair("bert.attention.layer_norm_epsilon", FLOAT32, 1e-12),
        pair("bert.attention.causal", BOOL, False),
        pair("tokenizer.ggml.model", STRING, "bert"),
        array("tokenizer.ggml.tokens", STRING, list(VOCABULARY)),
        array("tokenizer.ggml.token_type", INT32, kinds),
        *(pair(f"bert.{name}", UINT32, value) for name, value in numbers.items()),
        *(pair(f"tokenizer.ggml.{name}", UINT32, value) for name, value in special.items()),
    ]


def _tensors() -> Tensors:
    draw = np.random.default_rng(7)

    def weight(*shape: int) -> NDArray[np.float32]:
        return draw.normal(0, 0.3, shape).astype(np.float32)

    tensors = {
        "token_embd.weight": weight(len(VOCABULARY), SIZE),
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
