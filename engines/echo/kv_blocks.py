"""The echo engine's KV memory: a pool of blocks that holds nothing but is counted to the last one.

A running sequence owns whole blocks. What it had computed when it is released stays behind as a
cached path, evicted least recently used first when blocks are needed. A prefix found in the cache
counts as computed for the new sequence, which gets blocks of its own for it.
"""

from typing import Final

from engines.prefix_cache import PrefixCache
from engines.sequence import Sequence

DEFAULT_BLOCK_TOKENS: Final = 16


class Place:
    """What one sequence owns. Its identity is the holder that the prefix cache knows."""

    __slots__ = ("answer", "is_published", "num_blocks")

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.is_published = False
        self.answer: list[int] | None = None


class EchoKv:
    """A KvManager over `total_tokens` tokens in blocks of `block_tokens`."""

    def __init__(self, total_tokens: int, block_tokens: int = DEFAULT_BLOCK_TOKENS) -> None:
        self._block_tokens = block_tokens
        self._num_blocks = -(-total_tokens // block_tokens)
        self._num_used = 0
        self._num_cached = 0
        self._cache = PrefixCache()
        self._idle: set[Place] = set()

    @property
    def total_tokens(self) -> int:
        """Size of the pool."""
        return self._num_blocks * self._block_tokens

    @property
    def used_tokens(self) -> int:
        """Tokens in blocks of running sequences."""
        return self._num_used * self._block_tokens

    @property
    def cached_tokens(self) -> int:
        """Tokens in blocks kept for reuse."""
        return self._num_cached * self._block_tokens

    @property
    def saved_tokens(self) -> int:
        """All tokens are in blocks."""
        return 0

    def admit(self, sequence: Sequence, *, spare_tokens: int = 0) -> bool:
        """Blocks for all known tokens, and credit for what the cache already covers of them."""
        num_blocks = self._blocks_for(len(sequence.token_ids))
        holder, num_matched = self._cache.longest(sequence.cache_salt, sequence.token_ids)
        num_left = self.total_tokens - self.used_tokens - len(sequence.token_ids)
        if num_left < spare_tokens or not self._claim(num_blocks):
            return False
        if holder in self._cache:
            self._cache.touch(holder)
        sequence.kv = Place(num_blocks)
        sequence.num_computed = min(num_matched, len(sequence.token_ids) - 1)
        if sequence.num_preemptions == 0:
            sequence.num_cached = sequence.num_computed
        return True

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Blocks for `num_tokens` in all. A prompt is shared from the moment it is computed."""
        place: Place = sequence.kv
        if not place.is_published and sequence.num_computed >= sequence.num_prompt_tokens:
            prompt = sequence.token_ids[: sequence.num_prompt_tokens]
            self._cache.insert(sequence.cache_salt, prompt, place)
            place.is_published = True
        if num_tokens <= place.num_blocks * self._block_tokens:
            return True
        num_missing = self._blocks_for(num_tokens) - place.num_blocks
        if not self._claim(num_missing):
            return False
        place.num_blocks += num_missing
        return True

    def release(self, sequence: Sequence, *, reusable: bool = True) -> None:
        """Take all blocks back; those with computed tokens become cached ones."""
        place: Place = sequence.kv
        sequence.kv = None
        self._num_used -= place.num_blocks
        self._cache.remove(place)
        if not reusable or not sequence.num_computed:
            return
        path = sequence.token_ids[: sequence.num_computed]
        other, num_matched = self._cache.longest(sequence.cache_salt, path)
        if num_matched == len(path) and other is not None:
            self._cache.touch(other)
            return
        place.num_blocks = self._blocks_for(len(path))
        self._num_cached += place.num_blocks
        self._idle.add(place)
        self._cache.insert(sequence.cache_salt, path, place)

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self._block_tokens)

    def _claim(self, num_blocks: int) -> bool:
        """Count free blocks as used, evicting cached ones as needed; False changes nothing."""
        if num_blocks > self._num_blocks - self._num_used:
            return False
        self._num_used += num_blocks
        while self._num_used + self._num_cached > self._num_blocks:
            self._evict_one()
        return True

    def _evict_one(self) -> None:
        place = next(
            holder
            for holder in self._cache.holders()
            if isinstance(holder, Place) and holder in self._idle
        )
        self._cache.remove(place)
        self._idle.remove(place)
        self._num_cached -= place.num_blocks
