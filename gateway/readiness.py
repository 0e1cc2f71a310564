"""Whether the box can serve a request now, and if not, why."""

from typing import Literal

from msgspec import Struct

from gateway.box import Box


class Readiness(Struct, frozen=True, kw_only=True):
    """`reasons` are stable codes; empty when the box is ready."""

    status: Literal["ready", "unavailable"]
    reasons: tuple[str, ...] = ()


def find_obstacles(box: Box) -> tuple[str, ...]:
    """What keeps the box from serving, as codes of the manual."""
    needs_model = bool(box.config.engine.preload)
    checks = {
        "gateway.draining": box.drain.is_on,
        "audit.unavailable": not box.audit.is_available,
        "engine.unreachable": not box.fleet.is_connected,
        "engine.no_model": needs_model and box.fleet.is_connected and not box.fleet.ready_models,
    }
    return tuple(code for code, stands_in_the_way in checks.items() if stands_in_the_way)
