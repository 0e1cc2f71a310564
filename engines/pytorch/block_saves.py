"""Which blocks are kept in the host's memory after the device's was needed for others.

Pure bookkeeping: a place is a number, and whoever owns the bytes carries out what is decided. What
is saved stays when it is fetched back; the least recently used goes when there is no more room.
"""

from collections import OrderedDict
from typing import TypeAlias

from msgspec import Struct


class Save(Struct, frozen=True, kw_only=True):
    """`place` shall hold what `block` holds."""

    block: int
    place: int


class Load(Struct, frozen=True, kw_only=True):
    """`block` shall hold what `place` holds."""

    place: int
    block: int


Copy: TypeAlias = Save | Load


class SavedBlocks:
    """Saved blocks by their digests, no more than `num_places`."""

    def __init__(self, num_places: int) -> None:
        self._free = list(range(num_places))
        self._places: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._places

    def save(self, digest: bytes) -> int | None:
        """A place for this block; None where it has one, or where there are none at all."""
        if digest in self._places:
            self._places.move_to_end(digest)
            return None
        if not self._free and not self._places:
            return None
        place = self._free.pop() if self._free else self._places.popitem(last=False)[1]
        self._places[digest] = place
        return place

    def hold(self, digest: bytes) -> int:
        """The place of a block that is saved, which nothing else takes until it is put back."""
        return self._places.pop(digest)

    def put_back(self, digest: bytes, place: int) -> None:
        """End what `hold` began; the block is now the most recently used."""
        self._places[digest] = place

    def forget_all(self) -> None:
        """Give all places back."""
        self._free += self._places.values()
        self._places.clear()
