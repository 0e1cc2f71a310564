"""Which sequence sits in which slot of llama.cpp's KV memory, and what free slots still remember.

The memory is split into slots of equal size, one llama.cpp sequence id each. A slot keeps the
tokens of its last sequence until it is needed, and then they are saved in the host's memory where
that is worth it (`engines.llamacpp.saved_prefixes`). A prompt that starts the same way takes them
over: in place, by copying the slot, or from there. llama.cpp computes neighbouring slots in one
graph and starts a new graph at every gap, and a gap costs about half a single-sequence step, so
running sequences are kept side by side.
"""

from collections.abc import Hashable
from typing import Any, Final, TypeAlias, cast

from msgspec import Struct

from engines.llamacpp.calls import num_runs
from engines.llamacpp.saved_prefixes import Memory, SavedPrefixes, SavedState
from engines.prefix_cache import PrefixCache
from engines.sequence import Sequence

# A copy takes as long as computing about this many tokens.
_MIN_COPIED_TOKENS: Final = 8
# A move costs about as much as this many steps with a gap.
_GAPPY_STEPS_BEFORE_MOVE: Final = 4


class Seat(Struct, eq=False):
    """The place of one running sequence; `slot` may change between steps.

    The runner sets `is_broken` when a step failed: the slot holds less than the sequence says.
    `sampler` is the runner's own, kept here because it lives exactly as long.
    """

    slot: int
    sequence: Sequence
    num_indexed: int = 0
    is_broken: bool = False
    sampler: Any = None


class Move(Struct, frozen=True, kw_only=True):
    """`destination` shall hold the first `num_tokens` that `source` holds, and nothing else."""

    source: int
    destination: int
    num_tokens: int


class Save(Struct, frozen=True, kw_only=True):
    """`state` shall be what `slot` holds."""

    slot: int
    state: SavedState


class Load(Struct, frozen=True, kw_only=True):
    """`slot` shall hold the first `num_tokens` of `state`, and nothing else."""

    state: SavedState
    slot: int
    num_tokens: int


Order: TypeAlias = Move | Save | Load


class KvCells:
    """The KvManager of llama.cpp's split memory. Gives orders; the runner carries them out.

    With `shares_prefixes` off (memory that cannot be trimmed) nothing is remembered. Beyond the
    slots, up to `saved_tokens` are. Of a prompt that is known `num_left` tokens are computed again.
    """

    def __init__(
        self,
        num_slots: int,
        context_tokens: int,
        *,
        shares_prefixes: bool,
        saved_tokens: int = 0,
        num_left: int = 1,
    ) -> None:
        self._num_slots = num_slots
        self._num_left = num_left
        self._context_tokens = context_tokens
        self._shares_prefixes = shares_prefixes
        self._seats: dict[int, Seat] = {}
        self._memories: dict[int, Memory] = {}
        self._cache = PrefixCache()
        self._saved = SavedPrefixes(saved_tokens if shares_prefixes else 0)
        self._orders: list[Order] = []
        self._num_gappy_steps = 0

    @property
    def total_tokens(self) -> int:
        """Tokens that all slots hold together."""
        return self._num_slots * self._context_tokens

    @property
    def used_tokens(self) -> int:
        """Tokens held by running sequences."""
        return sum(seat.sequence.num_computed for seat in self._seats.values())

    @property
    def cached_tokens(self) -> int:
        """Tokens that free slots remember."""
        free = self._memories.keys() - self._seats.keys()
        return sum(len(self._memories[slot].token_ids) for slot in free)

    @property
    def saved_tokens(self) -> int:
        """Tokens that are saved beyond the slots."""
        return self._saved.num_tokens

    def admit(self, sequence: Sequence, *, spare_tokens: int = 0) -> bool:  # noqa: ARG002
        """Seat a waiting sequence and let it keep the longest prefix that is still known."""
        if len(self._seats) == self._num_slots or not self.grow(sequence, len(sequence.token_ids)):
            return False
        self._remember_computed()
        source, num_shared = self._find_prefix(sequence)
        slot = self._choose_slot(source, num_shared)
        if slot != source and num_shared < _MIN_COPIED_TOKENS:
            num_shared = 0
        self._prepare(slot, source if num_shared else None, num_shared)
        self._seats[slot] = sequence.kv = Seat(slot, sequence, num_shared)
        self._remember(slot, sequence, num_shared)
        sequence.num_computed = num_shared
        if not sequence.num_preemptions:
            sequence.num_cached = num_shared
        return True

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:  # noqa: ARG002
        """Whether a slot is large enough; every running sequence owns a whole one."""
        return num_tokens <= self._context_tokens

    def release(self, sequence: Sequence, *, reusable: bool = True) -> None:
        """Free the slot; with `reusable` it remembers what it has computed."""
        seat: Seat = sequence.kv
        sequence.kv = None
        del self._seats[seat.slot]
        self._forget(seat.slot)
        if reusable and not seat.is_broken:
            self._remember(seat.slot, sequence, sequence.num_computed)

    def close_gaps(self) -> None:
        """Once a step: bring running sequences together when gaps between them have lasted."""
        if num_runs(self._seats) <= 1:
            self._num_gappy_steps = 0
            return
        self._num_gappy_steps += 1
        if self._num_gappy_steps < _GAPPY_STEPS_BEFORE_MOVE:
            return
        self._num_gappy_steps = 0
        best = min(
            ((start, end) for start in self._seats for end in self._free_slots()),
            key=lambda move: self._num_runs_after(*move),
        )
        if self._num_runs_after(*best) < num_runs(self._seats):
            self._reseat(*best)

    def take_orders(self) -> list[Order]:
        """What to do, one after the other, before the next step computes anything."""
        orders, self._orders = self._orders, []
        return orders

    def _find_prefix(self, sequence: Sequence) -> tuple[Hashable, int]:
        """Who holds the longest prefix, and how long it is. A slot is better than a saved state."""
        salt, token_ids = sequence.cache_salt, sequence.token_ids[: -self._num_left]
        slot, num_shared = self._cache.longest(salt, token_ids)
        state, num_saved = self._saved.longest(salt, token_ids)
        return (state, num_saved) if num_saved > num_shared else (slot, num_shared)

    def _choose_slot(self, source: Hashable, num_shared: int) -> int:
        """The free slot that leaves the fewest gaps; then the source, then the least useful."""
        free = self._free_slots()
        takes_most = self._takes_most(source, num_shared)
        age = {slot: rank for rank, slot in enumerate(free)}
        return min(
            free,
            key=lambda slot: (
                num_runs(self._seats.keys() | {slot}),
                not (takes_most and slot == source),
                age[slot],
            ),
        )

    def _takes_most(self, source: Hashable, num_shared: int) -> bool:
        """Whether what is shared is worth more than what the source has beyond it."""
        memory = self._memories.get(cast("int", source))
        return memory is not None and 2 * num_shared >= len(memory.token_ids)

    def _prepare(self, slot: int, source: Hashable, num_shared: int) -> None:
        """Make `slot` hold the shared prefix; what would be lost is rescued where it is worth it.

        A memory of which most is shared moves with it.
        """
        takes_most = self._takes_most(source, num_shared)
        if isinstance(source, SavedState):
            self._saved.touch(source)
        if slot in self._memories:
            self._rescue(slot, num_shared if slot == source else 0, source)
        self._forget(slot)
        self._bring(slot if source is None else source, slot, num_shared)
        if takes_most and source in self._memories and source not in self._seats:
            self._rescue(source, num_shared, slot)
            self._forget(source)
        elif source in self._cache:
            self._cache.touch(source)

    def _bring(self, source: Hashable, slot: int, num_tokens: int) -> None:
        if isinstance(source, SavedState):
            self._orders.append(Load(state=source, slot=slot, num_tokens=num_tokens))
        else:
            self._move(cast("int", source), slot, num_tokens)

    def _rescue(self, slot: int, num_kept: int, source: Hashable) -> None:
        """Before all but the first tokens of a slot are lost: save them where that is worth it."""
        memory = self._memories[slot]
        if not self._saved.room_tokens:
            if 2 * num_kept < len(memory.token_ids):
                self._copy_elsewhere(slot, source)
            return
        num_held = max(num_kept, self._cache.num_covered_by_others(slot))
        state = self._saved.save(memory, num_held)
        if state is not None:
            self._orders.append(Save(slot=slot, state=state))

    def _copy_elsewhere(self, slot: int, source: Hashable) -> None:
        """Copy what `slot` remembers over an empty or less recently used slot, if there is one."""
        order = self._free_slots()
        victims = [victim for victim in order[: order.index(slot)] if victim != source]
        if not victims:
            return
        memory = self._memories[slot]
        self._forget(victims[0])
        self._memories[victims[0]] = memory
        self._cache.insert(memory.salt, memory.token_ids, victims[0])
        self._move(slot, victims[0], len(memory.token_ids))

    def _reseat(self, start: int, end: int) -> None:
        if end in self._memories:
            self._rescue(end, 0, None)
        self._forget(end)
        self._forget(start)
        seat = self._seats.pop(start)
        seat.slot, seat.num_indexed = end, 0
        self._seats[end] = seat
        self._move(start, end, seat.sequence.num_computed)

    def _move(self, source: Hashable, destination: int, num_tokens: int) -> None:
        self._orders.append(
            Move(source=cast("int", source), destination=destination, num_tokens=num_tokens)
        )

    def _remember_computed(self) -> None:
        """Let others share the prompts of running sequences as far as they are computed."""
        for seat in self._seats.values():
            sequence = seat.sequence
            num_tokens = min(sequence.num_computed, sequence.num_prompt_tokens)
            if num_tokens > seat.num_indexed:
                seat.num_indexed = num_tokens
                self._remember(seat.slot, sequence, num_tokens)

    def _remember(self, slot: int, sequence: Sequence, num_tokens: int) -> None:
        if self._shares_prefixes and num_tokens:
            token_ids = sequence.token_ids[:num_tokens]
            self._memories[slot] = Memory(sequence.cache_salt, token_ids)
            self._cache.insert(sequence.cache_salt, token_ids, slot)

    def _forget(self, slot: int) -> None:
        if self._memories.pop(slot, None) is not None:
            self._cache.remove(slot)

    def _free_slots(self) -> list[int]:
        """Empty slots, then those that remember something, the least recently used first."""
        empty = [slot for slot in range(self._num_slots) if slot not in self._memories]
        remembering = [cast("int", holder) for holder in self._cache.holders()]
        return [slot for slot in empty + remembering if slot not in self._seats]

    def _num_runs_after(self, start: int, end: int) -> int:
        return num_runs(self._seats.keys() - {start} | {end})
