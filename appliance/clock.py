"""What time it is: the two clocks of the box, passed as arguments to whatever needs one."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

# Seconds that only ever grow (`time.monotonic`): for durations and deadlines.
Monotonic: TypeAlias = Callable[[], float]
# The time of day, always in UTC: for what is kept.
Now: TypeAlias = Callable[[], datetime]


def utc_now() -> datetime:
    """The time of day in UTC, with its time zone."""
    return datetime.now(UTC)
