"""How far a long piece of work has come, told to whoever wants to show it.

What is shown, and where, is decided by the caller: see `appliance.commands.show`.
"""

from typing import Protocol


class Progress(Protocol):
    """Told about one piece of work after another."""

    def start(self, label: str, total_bytes: int, done_bytes: int) -> None:
        """A piece of work begins (`total_bytes` 0: not known), `done_bytes` of it already there."""

    def advance(self, num_bytes: int) -> None:
        """`num_bytes` more are done."""

    def finish(self) -> None:
        """The piece of work is over."""


class Silent:
    """Shows nothing."""

    def start(self, label: str, total_bytes: int, done_bytes: int) -> None:
        """Nothing to show."""

    def advance(self, num_bytes: int) -> None:
        """Nothing to show."""

    def finish(self) -> None:
        """Nothing to show."""
