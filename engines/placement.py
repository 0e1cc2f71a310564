"""Whether a model fits, who has to go for it, and what it is given: byte arithmetic only."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from appliance.errors import EngineError
from appliance.footprint import Footprint, share_for_prefixes

_MIB: Final = 1024 * 1024


class Room(Struct, frozen=True, kw_only=True):
    """The memory that a model's keys and values may take in its slots, and its prefixes beyond."""

    kv_bytes: int
    prefix_bytes: int = 0


class Occupant(Struct, frozen=True, kw_only=True):
    """A model in memory that may be let go, idle since a time of the host's clock."""

    model: str
    held_bytes: int
    idle_since: float


def grant_room(need: Footprint, *, free_bytes: int, prefix_share: float) -> Room:
    """What a model gets that fits: prefixes a share of what it leaves over, its slots the rest."""
    spare_bytes = free_bytes - need.total_bytes
    prefix_bytes = share_for_prefixes(need, spare_bytes, prefix_share)
    return Room(kv_bytes=need.kv_bytes + spare_bytes - prefix_bytes, prefix_bytes=prefix_bytes)


def require_room(model: str, *, needed_bytes: int, free_bytes: int) -> None:
    """Raises EngineError `engine.does_not_fit`, naming what is needed and what is free."""
    if needed_bytes > free_bytes:
        raise EngineError(
            "engine.does_not_fit",
            f"the model {model!r} needs {needed_bytes // _MIB} MiB of memory"
            f" and {max(0, free_bytes) // _MIB} MiB are free",
            hint="unload another model, or choose a smaller one",
        )


def choose_evictions(idle: Iterable[Occupant], missing_bytes: int) -> tuple[str, ...]:
    """The models to let go of, those idle for longest first; none where all would not be enough."""
    chosen: list[str] = []
    for occupant in sorted(idle, key=lambda each: each.idle_since):
        if missing_bytes <= 0:
            break
        chosen.append(occupant.model)
        missing_bytes -= occupant.held_bytes
    return tuple(chosen) if missing_bytes <= 0 else ()
