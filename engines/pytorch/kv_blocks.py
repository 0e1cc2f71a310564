"""Which sequence's keys and values lie in which blocks, and which of them a prompt takes over.

A sequence owns whole blocks and gets one more when its last is full, so at most one of them is not
full. A block that is full, and computed from tokens that are certain, can be found by what it
holds; prompts that begin the same way own it together, and nothing is copied. Those of a sequence
that has left are kept until they are needed for others, its last tokens before its first.
"""

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engines.pytorch.block_hashes import find_digests
from engines.pytorch.block_pool import Block, BlockPool
from engines.pytorch.block_saves import Copy, Load, Save, SavedBlocks
from engines.sequence import Sequence

BLOCK_TOKENS: Final = 16

# A block that is there, or the digest of one that is saved.
_Hit: TypeAlias = Block | bytes


class BlockTable:
    """The blocks of one running sequence, in order; `row` is where their numbers stand.

    `num_tokens` fit in them. The first `num_known` can be found by others; the next can be once
    `next_known_at` tokens are computed. `sampler` is the runner's own.
    """

    __slots__ = ("blocks", "next_known_at", "num_known", "num_tokens", "row", "sampler")

    def __init__(self, row: int) -> None:
        self.row = row
        self.blocks: list[Block] = []
        self.num_tokens = 0
        self.num_known = 0
        self.next_known_at = 0
        self.sampler: Any = None


class KvBlocks:
    """The KvManager over `num_blocks` blocks, for up to `num_slots` sequences at a time.

    Each may have up to `context_tokens`. Beyond the blocks, `num_places` are saved. `tables` holds
    the numbers of everyone's blocks, a row each.
    """

    def __init__(
        self,
        num_blocks: int,
        *,
        num_slots: int,
        context_tokens: int,
        block_tokens: int = BLOCK_TOKENS,
        num_places: int = 0,
    ) -> None:
        self.block_tokens = block_tokens
        self._pool = BlockPool(num_blocks)
        self._saved = SavedBlocks(num_places)
        self._copies: list[Copy] = []
        self._free_rows = list(range(num_slots))
        width = min(self._blocks_for(context_tokens), num_blocks)
        self._most_tokens = width * block_tokens
        self.tables: NDArray[np.int32] = np.zeros((num_slots, width), np.int32)

    @property
    def total_tokens(self) -> int:
        """Tokens that all blocks hold together."""
        return self._pool.num_blocks * self.block_tokens

    @property
    def used_tokens(self) -> int:
        """Tokens in blocks of running sequences, those of several counted once."""
        return (self._pool.num_blocks - self._pool.num_free) * self.block_tokens

    @property
    def cached_tokens(self) -> int:
        """Tokens in blocks that nobody owns and that can still be found."""
        return self._pool.num_cached * self.block_tokens

    @property
    def saved_tokens(self) -> int:
        """Tokens in blocks that are saved."""
        return len(self._saved) * self.block_tokens

    def admit(self, sequence: Sequence, *, spare_tokens: int = 0) -> bool:
        """Blocks for all known tokens, as many as possible of them with what is known already."""
        hits = self._find_hits(sequence)
        num_blocks = self._blocks_for(len(sequence.token_ids))
        owned = [hit for hit in hits if isinstance(hit, Block)]
        num_free = self._pool.num_free - sum(not block.num_owners for block in owned)
        num_needed = num_blocks - len(owned) + self._blocks_for(spare_tokens)
        if num_needed > num_free or not self._free_rows:
            return False
        for block in owned:  # before any is taken: that could be one of these
            self._pool.own(block)
        table = sequence.kv = BlockTable(self._free_rows.pop())
        for block in self._fetch(hits):
            self._append(table, block)
        table.num_known = len(hits)
        table.next_known_at = table.num_tokens + self.block_tokens
        sequence.num_computed = table.num_tokens
        if not sequence.num_preemptions:
            sequence.num_cached = table.num_tokens
        self._add_blocks(table, num_blocks - len(hits))
        return True

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Blocks for `num_tokens` in all; and what was computed can be found from now on."""
        table: BlockTable = sequence.kv
        if sequence.num_computed >= table.next_known_at:
            self._publish(sequence, table)
        if num_tokens <= table.num_tokens:
            return True
        num_missing = self._blocks_for(num_tokens - table.num_tokens)
        if num_tokens > self._most_tokens or num_missing > self._pool.num_free:
            return False
        self._add_blocks(table, num_missing)
        return True

    def release(self, sequence: Sequence, *, reusable: bool = True) -> None:
        """Give the blocks back, the last one first; without `reusable` none is found again."""
        table: BlockTable = sequence.kv
        sequence.kv = None
        if reusable:
            self._publish(sequence, table)
        else:
            for block in table.blocks:
                self._pool.forget(block)
        self._pool.give_back(reversed(table.blocks))
        self._free_rows.append(table.row)

    def forget_all(self) -> None:
        """Let nothing be found any more; only while nobody runs."""
        self._pool.forget_all()
        self._saved.forget_all()
        self._copies.clear()

    def take_copies(self) -> list[Copy]:
        """What to copy, one after the other, before the next step computes anything."""
        copies, self._copies = self._copies, []
        return copies

    def _find_hits(self, sequence: Sequence) -> list[_Hit]:
        """What is known of a prompt's full blocks; at least one token is left to compute."""
        hits: list[_Hit] = []
        for number in range((len(sequence.token_ids) - 1) // self.block_tokens):
            digest = find_digests(sequence, number + 1, self.block_tokens)[number]
            hit = self._pool.find(digest)
            if hit is None and digest not in self._saved:
                break
            hits.append(hit or digest)
        return hits

    def _fetch(self, hits: list[_Hit]) -> list[Block]:
        """The blocks; those that were saved are to be loaded into others.

        Meanwhile their places are held: taking a block may save what is in it.
        """
        held = {hit: self._saved.hold(hit) for hit in hits if isinstance(hit, bytes)}
        blocks = [hit if isinstance(hit, Block) else self._load(hit, held[hit]) for hit in hits]
        for digest, place in held.items():
            self._saved.put_back(digest, place)
        return blocks

    def _load(self, digest: bytes, place: int) -> Block:
        block = self._take()
        self._copies.append(Load(place=place, block=block.index))
        self._pool.remember(block, digest)
        return block

    def _take(self) -> Block:
        """A free block. What could still be found in it is saved, where there is room."""
        block, digest = self._pool.take()
        place = self._saved.save(digest) if digest else None
        if place is not None:
            self._copies.append(Save(block=block.index, place=place))
        return block

    def _add_blocks(self, table: BlockTable, num_blocks: int) -> None:
        for _ in range(num_blocks):
            self._append(table, self._take())

    def _append(self, table: BlockTable, block: Block) -> None:
        self.tables[table.row, len(table.blocks)] = block.index
        table.blocks.append(block)
        table.num_tokens += self.block_tokens

    def _publish(self, sequence: Sequence, table: BlockTable) -> None:
        """Let blocks be found that are full of computed tokens; guesses never count as such."""
        num_full = sequence.num_computed // self.block_tokens
        digests = find_digests(sequence, num_full, self.block_tokens)
        for number in range(table.num_known, num_full):
            self._pool.remember(table.blocks[number], digests[number])
        table.num_known = num_full
        table.next_known_at = (num_full + 1) * self.block_tokens

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_tokens)
