"""Whether the box can serve a request now, and if not, why."""

import asyncio
from typing import Final, Literal

from msgspec import Struct

from appliance.errors import StoreError
from gateway.box import Box

# How long the store may take to answer a small question.
STORE_S: Final = 2.0


class Readiness(Struct, frozen=True, kw_only=True):
    """`reasons` are stable codes; empty when the box is ready."""

    status: Literal["ready", "unavailable"]
    reasons: tuple[str, ...] = ()


async def find_obstacles(box: Box) -> tuple[str, ...]:
    """What keeps the box from serving, as codes of the manual."""
    needs_model = bool(box.config.engine.preload) and box.fleet.is_connected
    has_no_model = needs_model and not box.fleet.ready_models
    checks = {
        "gateway.draining": box.drain.is_on,
        "audit.unavailable": not box.audit.is_available,
        "engine.unreachable": not box.fleet.is_connected,
        "engine.no_model": has_no_model,
    }
    found = [code for code, stands_in_the_way in checks.items() if stands_in_the_way]
    reasons = sorted(box.fleet.failure_codes) if has_no_model else ()
    return (*found, *reasons, *await _ask_store(box))


async def _ask_store(box: Box) -> tuple[str, ...]:
    try:
        async with asyncio.timeout(STORE_S):
            await box.store.tenants.list()
    except StoreError as error:
        return (error.code,)
    except TimeoutError:
        return ("store.busy",)
    return ()
