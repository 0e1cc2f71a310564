"""How the box goes down: told once, it takes nothing new; told again, it hurries.

serving -> draining -> hurried
"""

import asyncio


class Drain:
    """Whether this gateway is on its way out."""

    def __init__(self) -> None:
        self._began = asyncio.Event()
        self._hurried = asyncio.Event()

    @property
    def is_on(self) -> bool:
        """Whether nothing new is taken any more."""
        return self._began.is_set()

    def begin(self) -> None:
        """Called by every signal to stop: the first begins, the second hurries."""
        (self._hurried if self.is_on else self._began).set()

    async def wait_until_on(self) -> None:
        """Return once the box is told to stop."""
        await self._began.wait()

    async def wait_until_hurried(self, at_most_s: float) -> None:
        """Return when told to hurry, or when the time is over."""
        try:
            async with asyncio.timeout(at_most_s):
                await self._hurried.wait()
        except TimeoutError:
            return
