"""The blocks of the KV memory: who owns each, which may be given out, and which are known.

All blocks are made once. Those that nobody owns stand in one list, linked through the blocks
themselves so that any of them leaves it in constant time: the next to be given out first. One that
holds known tokens is found by their digest until it is given out again, so "free" means evictable.
(PagedAttention: Kwon et al. 2023.)
"""

from collections.abc import Iterable


class Block:
    """One block. `digest` names its tokens and all before them; empty: nothing to be found by."""

    __slots__ = ("after", "before", "digest", "index", "num_owners")

    def __init__(self, index: int) -> None:
        self.index = index
        self.num_owners = 0
        self.digest = b""
        self.before = self
        self.after = self


class BlockPool:
    """`num_blocks` blocks, numbered from 0."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.num_free = 0
        self._known: dict[bytes, Block] = {}
        self._num_known_owned = 0
        self._list = Block(-1)  # its neighbours are the first and the last free block
        for index in range(num_blocks):
            self._free(Block(index), at_end=True)

    @property
    def num_cached(self) -> int:
        """Blocks that nobody owns and that can still be found."""
        return len(self._known) - self._num_known_owned

    def find(self, digest: bytes) -> Block | None:
        """The block that holds these tokens."""
        return self._known.get(digest)

    def own(self, block: Block) -> None:
        """One more owner for a block that was found."""
        if not block.num_owners:
            self._unlink(block)
            self._num_known_owned += 1
        block.num_owners += 1

    def take(self) -> tuple[Block, bytes]:
        """The free block that is missed least, now owned and known no more, and what it was known
        as. Only where `num_free`.
        """
        block = self._list.after
        self._unlink(block)
        block.num_owners = 1
        digest, block.digest = block.digest, b""
        if digest:
            del self._known[digest]
        return block, digest

    def remember(self, block: Block, digest: bytes) -> None:
        """Let an owned block be found. Of two that hold the same tokens the first is."""
        if digest not in self._known:
            block.digest = digest
            self._known[digest] = block
            self._num_known_owned += 1

    def forget(self, block: Block) -> None:
        """Let an owned block be found no more."""
        if block.digest:
            del self._known[block.digest]
            block.digest = b""
            self._num_known_owned -= 1

    def forget_all(self) -> None:
        """Let no block be found any more."""
        for block in self._known.values():
            block.digest = b""
        self._known.clear()
        self._num_known_owned = 0

    def give_back(self, blocks: Iterable[Block]) -> None:
        """One owner less for each. Those that are given back first are given out first."""
        for block in blocks:
            block.num_owners -= 1
            if block.num_owners:
                continue
            self._num_known_owned -= bool(block.digest)
            self._free(block, at_end=bool(block.digest))

    def _free(self, block: Block, *, at_end: bool) -> None:
        """At the end, or, where nothing is lost with it, at the beginning."""
        before = self._list.before if at_end else self._list
        block.before, block.after = before, before.after
        before.after.before = block
        before.after = block
        self.num_free += 1

    def _unlink(self, block: Block) -> None:
        block.before.after, block.after.before = block.after, block.before
        self.num_free -= 1
