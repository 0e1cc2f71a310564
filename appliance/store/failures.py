"""What a database's complaint means: one StoreError code for each thing a human can act on."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from appliance.errors import StoreError

# What SQLite and PostgreSQL say (part of the message, in lower case), and what it is to us.
_SIGNS: Final = (
    ("disk is full", "store.disk_full"),
    ("no space left", "store.disk_full"),
    ("readonly database", "store.read_only"),
    ("read-only", "store.read_only"),
    ("database is locked", "store.busy"),
    ("queuepool limit", "store.busy"),
    ("malformed", "store.damaged"),
    ("not a database", "store.damaged"),
    ("no such table", "store.damaged"),
    ("unable to open", "store.unreachable"),
    ("connect", "store.unreachable"),
    ("terminating", "store.unreachable"),
    ("shutting down", "store.unreachable"),
    ("password", "store.unreachable"),
    ("does not exist", "store.unreachable"),
)
_WORDS: Final = {
    "store.disk_full": ("the disk under the database is full", "free some space"),
    "store.read_only": (
        "the database cannot be written",
        "check who owns its files, and that the disk is not mounted read-only",
    ),
    "store.busy": ("the database is busy", "see what else holds it; then try again"),
    "store.damaged": ("the database is damaged", "restore it from a backup"),
    "store.unreachable": (
        "the database cannot be reached",
        "check that it runs, and store.url in the configuration",
    ),
    "store.failed": ("the database refused", "see the log for the kind of error"),
}


@contextmanager
def told_as_store_errors(database: str) -> Iterator[None]:
    """Raise StoreError for whatever the database says; `database` names it without a password."""
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        raise _told(error, database) from error


def _told(error: Exception, database: str) -> StoreError:
    said = str(getattr(error, "orig", None) or error).casefold()
    # An OSError comes from the way to the database: its folder, its socket, its name.
    unknown = "store.unreachable" if isinstance(error, OSError) else "store.failed"
    code = next((code for sign, code in _SIGNS if sign in said), unknown)
    what, hint = _WORDS[code]
    return StoreError(code, f"{what}: {database}", hint=hint)
