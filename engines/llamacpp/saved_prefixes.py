"""Which computed prefixes lie outside the slots, in the host's memory, and which of them go first.

Pure bookkeeping, in tokens: the runner puts the bytes of a slot into `SavedState.data`, and they
are freed with the last reference to it. What is saved stays when it is loaded, so that any number
of prompts can begin with it; the least recently used goes when there is no more room.
"""

from typing import Any, Final, cast

from msgspec import Struct

from engines.prefix_cache import PrefixCache

# What a copy back and forth takes is worth it from about here on.
_MIN_LOST_TOKENS: Final = 32
# Of the room that a state takes, at least this part must be for tokens that nobody else holds: a
# system prompt is saved once, not again with every short question that followed it.
_MIN_NEW_PART: Final = 1 / 8


class Memory(Struct, frozen=True):
    """A path of computed tokens, of one salt."""

    salt: bytes
    token_ids: list[int]


class SavedState(Struct, eq=False):
    """The computed `num_tokens` of one path. `data` is the runner's own."""

    num_tokens: int
    data: Any = None


class SavedPrefixes:
    """Saved states by their tokens, together no more than `room_tokens`."""

    def __init__(self, room_tokens: int) -> None:
        self.room_tokens = room_tokens
        self._cache = PrefixCache()
        self.num_tokens = 0

    def longest(self, salt: bytes, token_ids: list[int]) -> tuple[SavedState | None, int]:
        """A state that begins with the longest known prefix of `token_ids`, and its length."""
        holder, num_shared = self._cache.longest(salt, token_ids)
        return cast("SavedState | None", holder), num_shared

    def touch(self, state: SavedState) -> None:
        """Make a state the most recently used."""
        self._cache.touch(state)

    def save(self, memory: Memory, num_held: int) -> SavedState | None:
        """A new state for this path, to be filled; None where it is not worth its room.

        `num_held` of its first tokens are held by a slot, too.
        """
        num_tokens = len(memory.token_ids)
        known, num_saved = self.longest(memory.salt, memory.token_ids)
        num_lost = num_tokens - max(num_held, num_saved)
        # A state whose whole path is the beginning of this one is not needed beside it.
        replaced = known if known is not None and known.num_tokens == num_saved else None
        num_added = num_tokens - (num_saved if replaced else 0)
        is_worth_it = num_lost >= max(_MIN_LOST_TOKENS, _MIN_NEW_PART * num_added)
        if not is_worth_it or num_tokens > self.room_tokens:
            return None
        if replaced:
            self._drop(replaced)
        self._make_room(num_tokens)
        state = SavedState(num_tokens)
        self._cache.insert(memory.salt, memory.token_ids, state)
        self.num_tokens += num_tokens
        return state

    def _make_room(self, num_tokens: int) -> None:
        while self.num_tokens + num_tokens > self.room_tokens:
            self._drop(cast("SavedState", next(self._cache.holders())))

    def _drop(self, state: SavedState) -> None:
        self._cache.remove(state)
        self.num_tokens -= state.num_tokens
