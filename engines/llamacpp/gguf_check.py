"""Whether a GGUF file is what its header says, and the facts in that header.

libllama trusts a header and may read outside the file, or abort its process, when one lies. So
`python -m engines.llamacpp.gguf_check PATH` reads it first, with bounds on time and memory, and
prints one line of JSON: the facts, or what is broken and at which offset.
"""

import math
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from engines.llamacpp.gguf_reader import (
    FLOAT32,
    INT32,
    STRING,
    UINT32,
    ArrayOf,
    Broken,
    BrokenFileError,
    Pairs,
    Reader,
    quote,
    read_counts,
    read_pairs,
    read_tensor,
)

TIME_LIMIT_S: Final = 20
MEMORY_LIMIT_BYTES: Final = 1024 * 1024 * 1024

# What libllama itself bounds: LLAMA_MAX_LAYERS.
_MAX_BLOCKS: Final = 512

# Arrays that libllama reads element by element, as these types and as long as the vocabulary.
_VOCABULARY_ARRAYS: Final = {
    "tokenizer.ggml.scores": (FLOAT32,),
    "tokenizer.ggml.token_type": (INT32, UINT32),
}
_STRING_ARRAYS: Final = ("tokenizer.ggml.tokens", "tokenizer.ggml.merges")


class GgufFacts(Struct, frozen=True, kw_only=True):
    """What the header of a sound file says. 0 and "" where it says nothing.

    An encoder is a model that sees a whole text at once and remembers nothing of it.
    `num_kv_heads` has one number a block. `key_length` and `value_length` are numbers per head.
    `num_weights` counts the elements of all tensors, where they are in one file.
    """

    architecture: str
    name: str = ""
    file_type: int = -1
    context_length: int = 0
    num_blocks: int = 0
    embedding_length: int = 0
    num_heads: int = 0
    num_kv_heads: tuple[int, ...] = ()
    key_length: int = 0
    value_length: int = 0
    vocabulary_size: int = 0
    num_parts: int = 1
    chat_template: str = ""
    is_encoder: bool = False
    num_weights: int = 0

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of 16-bit keys and values that one token takes in all blocks."""
        if self.is_encoder:
            return 0
        return 2 * sum(self.num_kv_heads) * (self.key_length + self.value_length)


class Verdict(Struct, frozen=True, kw_only=True):
    """The one line of output: exactly one of the first two is set."""

    facts: GgufFacts | None = None
    broken: Broken | None = None
    kv_bytes_per_token: int = 0


def check(source: BinaryIO) -> GgufFacts:
    """The facts of a sound file. Raises BrokenFileError."""
    reader = Reader(source)
    num_tensors, num_pairs = read_counts(reader)
    pairs = read_pairs(reader, num_pairs)
    _check_vocabulary(pairs, reader.offset)
    _check_blocks(pairs, num_tensors, reader.offset)
    num_weights = _check_tensors(reader, num_tensors, _alignment(pairs, reader.offset))
    return _facts(pairs, num_weights)


def _check_vocabulary(pairs: Pairs, at: int) -> None:
    for key in _STRING_ARRAYS:
        value = pairs.get(key)
        if value is not None and not (isinstance(value, ArrayOf) and value.type == STRING):
            raise BrokenFileError(f"{key!r} is not an array of strings", at)
    tokens = pairs.get("tokenizer.ggml.tokens")
    for key, types in _VOCABULARY_ARRAYS.items():
        value = pairs.get(key)
        if value is None:
            continue
        if not (isinstance(value, ArrayOf) and value.type in types):
            raise BrokenFileError(f"{key!r} has elements of the wrong type", at)
        if not (isinstance(tokens, ArrayOf) and tokens.length == value.length):
            raise BrokenFileError(f"{key!r} is not as long as the vocabulary", at)


def _check_blocks(pairs: Pairs, num_tensors: int, at: int) -> None:
    architecture = pairs.get("general.architecture")
    if not (isinstance(architecture, str) and architecture):
        raise BrokenFileError("'general.architecture' is missing or not text", at)
    num_blocks = pairs.get(f"{architecture}.block_count", 0)
    if not isinstance(num_blocks, int) or num_blocks < 0:
        raise BrokenFileError("the number of blocks is not a whole number", at)
    if num_blocks > min(_MAX_BLOCKS, num_tensors):
        raise BrokenFileError(f"{num_blocks} blocks cannot be made of {num_tensors} tensors", at)


def _alignment(pairs: Pairs, at: int) -> int:
    alignment = pairs.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise BrokenFileError(f"the alignment {alignment!r} is not a power of two", at)
    return alignment


def _check_tensors(reader: Reader, count: int, alignment: int) -> int:
    """How many elements they have together."""
    tensors = [read_tensor(reader) for _ in range(count)]
    names: set[str] = set()
    data_start = math.ceil(reader.offset / alignment) * alignment
    for tensor in tensors:
        if tensor.name in names:
            raise BrokenFileError(f"the tensor {quote(tensor.name)} is there twice", tensor.at)
        names.add(tensor.name)
        if tensor.start % alignment:
            raise BrokenFileError(f"the tensor {quote(tensor.name)} is not aligned", tensor.at)
        over = data_start + tensor.start + tensor.num_bytes - reader.size
        if over > 0:
            raise BrokenFileError(
                f"the tensor {quote(tensor.name)} ends {over} bytes after the file", tensor.at
            )
    return sum(tensor.num_elements for tensor in tensors)


def _facts(pairs: Pairs, num_weights: int) -> GgufFacts:
    architecture = str(pairs["general.architecture"])

    def number(key: str, default: int = 0) -> int:
        value = pairs.get(key.replace("*", architecture), default)
        return value if isinstance(value, int) else default

    num_blocks, num_heads = number("*.block_count"), _heads(pairs, architecture, "head_count")
    num_kv_heads = _heads(pairs, architecture, "head_count_kv") or num_heads
    embedding_length = number("*.embedding_length")
    head_length = embedding_length // max(1, max(num_heads, default=1))
    tokens = pairs.get("tokenizer.ggml.tokens")
    template = pairs.get("tokenizer.chat_template", "")
    return GgufFacts(
        architecture=architecture,
        name=str(pairs.get("general.name", "")),
        file_type=number("general.file_type", -1),
        context_length=number("*.context_length"),
        num_blocks=num_blocks,
        embedding_length=embedding_length,
        num_heads=max(num_heads, default=0),
        num_kv_heads=num_kv_heads if len(num_kv_heads) > 1 else num_kv_heads * num_blocks,
        key_length=number("*.attention.key_length", head_length),
        value_length=number("*.attention.value_length", head_length),
        vocabulary_size=tokens.length if isinstance(tokens, ArrayOf) else 0,
        num_parts=max(1, number("split.count", 1)),
        chat_template=template if isinstance(template, str) else "",
        is_encoder=pairs.get(f"{architecture}.attention.causal") is False,
        num_weights=num_weights if number("split.count", 1) <= 1 else 0,
    )


def _heads(pairs: Pairs, architecture: str, key: str) -> tuple[int, ...]:
    """One number for all blocks, or one a block."""
    value = pairs.get(f"{architecture}.attention.{key}", 0)
    numbers = value.numbers if isinstance(value, ArrayOf) else (value,)
    return tuple(number for number in numbers if isinstance(number, int) and number > 0)


def judge(path: Path) -> Verdict:
    """The verdict on a file that can be opened. Raises OSError for one that cannot."""
    with path.open("rb") as source:
        try:
            facts = check(source)
            return Verdict(facts=facts, kv_bytes_per_token=facts.kv_bytes_per_token)
        except BrokenFileError as error:
            return Verdict(broken=error.broken)


def main(path: str, write: Callable[[str], object]) -> None:
    """Judge within bounds of time and memory, and write the verdict."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(TIME_LIMIT_S)
    write(msgspec.json.encode(judge(Path(path))).decode() + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.stdout.write)
