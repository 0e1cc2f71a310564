"""A tiny Llama model that writes nonsense in microseconds, with weights drawn from a fixed seed."""

from pathlib import Path
from typing import Final

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from gguf.quants import quantize
from numpy.typing import NDArray

CONTEXT_TOKENS: Final = 256
NUM_TOKENS: Final = 3 + 256
_SIZE: Final = 256
_NUM_BLOCKS: Final = 2
_NUM_HEADS: Final = 4
_NUM_KV_HEADS: Final = 2
_FORMAT: Final = GGMLQuantizationType.Q4_1


def write_llama(path: Path, kind: GGMLQuantizationType = _FORMAT) -> Path:
    """Write the model with its matrices in one format."""
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(_NUM_BLOCKS)
    writer.add_context_length(CONTEXT_TOKENS)
    writer.add_embedding_length(_SIZE)
    writer.add_feed_forward_length(_SIZE)
    writer.add_head_count(_NUM_HEADS)
    writer.add_head_count_kv(_NUM_KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    add_vocabulary(writer)
    _add_tensors(writer, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_vocabulary(writer: GGUFWriter) -> None:
    """NUM_TOKENS tokens: three that mark, and one for each byte."""
    bytes_ = [f"<0x{value:02X}>" for value in range(256)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", *bytes_])
    writer.add_token_scores([0.0] * NUM_TOKENS)
    special = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    writer.add_token_types([*special, *[TokenType.BYTE] * 256])


def _add_tensors(writer: GGUFWriter, kind: GGMLQuantizationType) -> None:
    draw = np.random.default_rng(7)

    def add(name: str, *shape: int) -> None:
        values: NDArray[np.float32] = draw.normal(0, 0.3, shape).astype(np.float32)
        writer.add_tensor(f"{name}.weight", quantize(values, kind), raw_dtype=kind)

    def add_norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(_SIZE, np.float32))

    num_kv = _SIZE * _NUM_KV_HEADS // _NUM_HEADS
    add("token_embd", NUM_TOKENS, _SIZE)
    add_norm("output_norm")
    for block in range(_NUM_BLOCKS):
        add_norm(f"blk.{block}.attn_norm")
        add(f"blk.{block}.attn_q", _SIZE, _SIZE)
        add(f"blk.{block}.attn_k", num_kv, _SIZE)
        add(f"blk.{block}.attn_v", num_kv, _SIZE)
        add(f"blk.{block}.attn_output", _SIZE, _SIZE)
        add_norm(f"blk.{block}.ffn_norm")
        for name in ("ffn_gate", "ffn_up", "ffn_down"):
            add(f"blk.{block}.{name}", _SIZE, _SIZE)
