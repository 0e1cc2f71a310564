"""What a full block is known by: a digest of its tokens, of all before them, and of the salt.

Two callers of different salts share no digest, so neither can find, nor time, what the other has
computed. The salt comes from whoever authenticated the caller.
"""

from array import array
from hashlib import blake2b
from typing import Final

from engines.sequence import Sequence

_ID_TYPE: Final = "i"
# Long enough that nobody finds two prompts of one digest.
_DIGEST_BYTES: Final = 32


def find_digests(sequence: Sequence, num_blocks: int, block_size: int) -> list[bytes]:
    """The digests of a sequence's first full blocks, at least so many, each computed once.

    They are kept in the sequence, because it may wait for memory for long and be asked about often.
    """
    digests = sequence.block_digests
    if digests is None:
        digests = sequence.block_digests = _inherited(sequence, block_size)
    for number in range(len(digests), num_blocks):
        parent = digests[-1] if digests else _root(sequence.cache_salt)
        tokens = sequence.token_ids[number * block_size : (number + 1) * block_size]
        digests.append(_digest(parent + array(_ID_TYPE, tokens).tobytes()))
    return digests


def _inherited(sequence: Sequence, block_size: int) -> list[bytes]:
    """What is known of the same prompt already, where there are several choices of it."""
    leader = sequence.leader
    if leader is None or leader.block_digests is None or leader.cache_salt != sequence.cache_salt:
        return []
    return leader.block_digests[: sequence.num_prompt_tokens // block_size]


def _root(salt: bytes) -> bytes:
    """What stands before the first block: as long as any digest, whatever the salt's length."""
    return _digest(salt)


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=_DIGEST_BYTES).digest()
