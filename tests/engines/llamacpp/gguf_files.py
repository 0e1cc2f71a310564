"""A writer of small GGUF files, sound ones and ones broken in a single way."""

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

STRING, ARRAY, UINT8, INT32, UINT32, FLOAT32, BOOL = 8, 9, 0, 5, 4, 6, 7
FORMATS = {UINT8: "<B", INT32: "<i", UINT32: "<I", FLOAT32: "<f", BOOL: "<?"}
TOKENS = ["<unk>", "<s>", "</s>", *(f"t{number}" for number in range(29))]


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def pair(key: str, kind: int, value: Any) -> bytes:
    head = text(key) + struct.pack("<I", kind)
    return head + (text(value) if kind == STRING else struct.pack(FORMATS[kind], value))


def array(key: str, kind: int, values: list[Any]) -> bytes:
    items = (text(v) if kind == STRING else struct.pack(FORMATS[kind], v) for v in values)
    head = text(key) + struct.pack("<IIQ", ARRAY, kind, len(values))
    return head + b"".join(items)


class Gguf(Struct, kw_only=True):
    """A small llama model's file, part by part; what is changed here is what is broken."""

    magic: bytes = b"GGUF"
    version: int = 3
    num_tensors: int = 1
    num_extra_pairs: int = 0
    tensor_name: str = "token_embd.weight"
    dims: tuple[int, ...] = (32, 32)
    tensor_type: int = 0
    tensor_start: int = 0
    pairs: dict[str, bytes]
    extra: bytes = b""

    def to_bytes(self) -> bytes:
        pairs = b"".join(self.pairs.values())
        num_pairs = len(self.pairs) + self.num_extra_pairs
        head = self.magic + struct.pack("<IQQ", self.version, self.num_tensors, num_pairs)
        dims = struct.pack(f"<{len(self.dims)}Q", *self.dims)
        tensor = text(self.tensor_name) + struct.pack("<I", len(self.dims)) + dims
        tensor += struct.pack("<IQ", self.tensor_type, self.tensor_start)
        data = head + pairs + self.extra + tensor
        return data + bytes(-len(data) % 32) + bytes(32 * 32 * 4)


def sound_pairs() -> dict[str, bytes]:
    numbers = {
        "block_count": 1,
        "context_length": 64,
        "embedding_length": 32,
        "feed_forward_length": 32,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
    }
    pairs = {
        "architecture": pair("general.architecture", STRING, "llama"),
        "epsilon": pair("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5),
        "tokenizer": pair("tokenizer.ggml.model", STRING, "llama"),
        "tokens": array("tokenizer.ggml.tokens", STRING, TOKENS),
        "scores": array("tokenizer.ggml.scores", FLOAT32, [0.0] * len(TOKENS)),
        "types": array("tokenizer.ggml.token_type", INT32, [1] * len(TOKENS)),
    }
    return pairs | {name: pair(f"llama.{name}", UINT32, value) for name, value in numbers.items()}


def gguf(pairs: Mapping[str, bytes] | None = None, **changes: Any) -> bytes:
    """The bytes of a sound file, but for the changes."""
    return Gguf(pairs=sound_pairs() | dict(pairs or {}), **changes).to_bytes()


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


# Name: how to make it, and a word that the complaint must hold.
BROKEN: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "start"),
    "four bytes": (lambda: b"GGUF", "start"),
    "not a gguf file": (lambda: b"GGML" + gguf()[4:], "start"),
    "version 0": (lambda: gguf(version=0), "version 0"),
    "version of the future": (lambda: gguf(version=4000), "version 4000"),
    "other byte order": (lambda: gguf(version=3 << 24), "version"),
    "endless tensors": (lambda: gguf(num_tensors=2**64 - 1), "tensors do not fit"),
    "endless pairs": (lambda: gguf(num_extra_pairs=2**62), "pairs do not fit"),
    "one tensor too many": (lambda: gguf(num_tensors=2), "tensor"),
    "a dimension of zero": (lambda: gguf(dims=(32, 0)), "shape"),
    "no dimension": (lambda: gguf(dims=()), "0 dimensions"),
    "five dimensions": (lambda: gguf(dims=(1, 1, 1, 1, 1)), "5 dimensions"),
    "a size that wraps around": (lambda: gguf(dims=(32, 2**59 + 1)), "larger than the file"),
    "rows that are no whole blocks": (lambda: gguf(dims=(31, 32), tensor_type=2), "shape"),
    "an unknown tensor type": (lambda: gguf(tensor_type=4), "unknown type 4"),
    "a tensor beyond the end": (lambda: gguf(tensor_start=64), "after the file"),
    "a tensor far beyond the end": (lambda: gguf(tensor_start=2**64 - 32), "after the file"),
    "an unaligned tensor": (lambda: gguf(tensor_start=1), "aligned"),
    "a tensor without a name": (lambda: gguf(tensor_name=""), "name"),
    "a tensor with an endless name": (lambda: gguf(tensor_name="x" * 64), "name"),
    "too many blocks": (
        lambda: gguf({"block_count": pair("llama.block_count", UINT32, 100_000)}),
        "blocks",
    ),
    "a negative number of blocks": (
        lambda: gguf({"block_count": pair("llama.block_count", INT32, -1)}),
        "blocks",
    ),
    "an empty key": (lambda: gguf({"x": pair("", UINT32, 1)}), "key is empty"),
    "a key twice": (lambda: gguf({"x": pair("llama.block_count", UINT32, 1)}), "twice"),
    "a key that is no text": (
        lambda: gguf({"x": struct.pack("<Q", 2) + b"\xff\xfe" + struct.pack("<IB", 0, 1)}),
        "UTF-8",
    ),
    "an endless string": (
        lambda: gguf({"x": text("name") + struct.pack("<IQ", STRING, 2**63)}),
        "bytes long",
    ),
    "an endless array": (
        lambda: gguf({"x": text("ids") + struct.pack("<IIQ", ARRAY, UINT32, 2**62)}),
        "after the file",
    ),
    "an array of arrays": (
        lambda: gguf({"x": text("ids") + struct.pack("<IIQ", ARRAY, ARRAY, 1)}),
        "unsupported type",
    ),
    "a value of unknown type": (
        lambda: gguf({"x": text("name") + struct.pack("<I", 99)}),
        "unknown type 99",
    ),
    "no architecture": (lambda: gguf({"architecture": pair("x", UINT32, 1)}), "architecture"),
    "scores of another size": (
        lambda: gguf({"scores": array("tokenizer.ggml.scores", UINT8, [0] * len(TOKENS))}),
        "wrong type",
    ),
    "too few scores": (
        lambda: gguf({"scores": array("tokenizer.ggml.scores", FLOAT32, [0.0])}),
        "as long as the vocabulary",
    ),
    "tokens that are no strings": (
        lambda: gguf({"tokens": array("tokenizer.ggml.tokens", UINT32, [1] * len(TOKENS))}),
        "array of strings",
    ),
    "an alignment of zero": (
        lambda: gguf({"x": pair("general.alignment", UINT32, 0)}),
        "alignment",
    ),
    "cut off": (lambda: gguf()[:-2048], "file"),
}
