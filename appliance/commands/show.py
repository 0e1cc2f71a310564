"""How commands show things: JSON for programs, a bar on a terminal, plain lines without one."""

import sys
import time
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from appliance.progress import Progress, Silent
from appliance.sources.fetching import megabytes

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

_LINE_EVERY_S: Final = 3.0


def print_json(value: Any) -> None:  # noqa: ANN401 - whatever msgspec can encode
    """One JSON document on one line of stdout."""
    click.echo(msgspec.json.encode(value).decode())


def printable(text: str) -> str:
    """The text without control characters: a model's answer must not steer the terminal."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc")


def print_table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Columns, each as wide as its widest cell."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Progress]:
    """Progress on stderr for the length of the block: a bar, plain lines, or nothing."""
    if quiet:
        yield Silent()
    elif not sys.stderr.isatty():
        yield Lines()
    else:
        with _rich_bar() as bar:
            yield Bar(bar)


def _rich_bar() -> "RichProgress":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


class Bar:
    """A bar that moves, for a terminal."""

    def __init__(self, bar: "RichProgress") -> None:
        self._bar = bar
        self._task: TaskID | None = None

    def start(self, label: str, total_bytes: int, done_bytes: int) -> None:
        """A new bar."""
        self._task = self._bar.add_task(label, total=total_bytes or None, completed=done_bytes)

    def advance(self, num_bytes: int) -> None:
        """The bar grows."""
        if self._task is not None:
            self._bar.advance(self._task, num_bytes)

    def finish(self) -> None:
        """The bar stays as it is."""
        self._task = None


class Lines:
    """A line at the start, every few seconds, and at the end: for logs and pipes."""

    def __init__(self) -> None:
        self._label = ""
        self._total_bytes = 0
        self._done_bytes = 0
        self._told_at = 0.0

    def start(self, label: str, total_bytes: int, done_bytes: int) -> None:
        """The first line."""
        self._label, self._total_bytes, self._done_bytes = label, total_bytes, done_bytes
        self._tell()

    def advance(self, num_bytes: int) -> None:
        """A line now and then."""
        self._done_bytes += num_bytes
        if time.monotonic() - self._told_at > _LINE_EVERY_S:
            self._tell()

    def finish(self) -> None:
        """The last line."""
        self._tell()

    def _tell(self) -> None:
        self._told_at = time.monotonic()
        of = f" of {megabytes(self._total_bytes)}" if self._total_bytes else ""
        click.echo(f"{self._label}: {megabytes(self._done_bytes)}{of}", err=True)
