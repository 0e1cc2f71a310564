"""Where a request goes: this box has one engine host, so the question is whether it is there."""

from typing import Final

from appliance.errors import EngineError
from gateway.routing.fleet import Fleet

RETRY_AFTER_S: Final = 1.0


def choose_host(fleet: Fleet) -> None:
    """Return when the host can take a request. Raises EngineError (503) when it cannot."""
    if not fleet.is_connected:
        raise EngineError(
            "engine.unreachable", "the engines are not running", retry_after_s=RETRY_AFTER_S
        )
