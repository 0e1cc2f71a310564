"""Every error the box can raise on purpose: one tree, a stable code each, a hint for the human.

    HisarError
    ├── ConfigError        the configuration cannot be used            exit 78
    ├── UsageError         a command was called wrongly                exit 2
    ├── MachineError       disk, port, permission, missing program     exit 69
    ├── CatalogueError     a model cannot be found, fetched or read    exit 66
    ├── StoreError         the database cannot be reached or used      exit 74
    ├── EngineError        the engine refused or lost a request        exit 70
    └── RequestError       a request is refused; carries an HTTP status

A code is `area.reason`, never changes once released, and has an entry of its own in
`appliance/manual/errors.md` (a test holds the two together). A message says what happened and
where; the hint says what to do. Neither ever holds a secret or a character of a prompt.
"""

from typing import ClassVar


class HisarError(Exception):
    """Something the box refuses to do, said so that a human can act on it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]" + (f"\n  hint: {self.hint}" if self.hint else "")


class ConfigError(HisarError):
    """The configuration cannot be used (sysexits EX_CONFIG)."""

    exit_code = 78


class UsageError(HisarError):
    """A command was called with arguments that make no sense."""

    exit_code = 2


class MachineError(HisarError):
    """The machine lacks something: disk, a free port, a permission, a program (EX_UNAVAILABLE)."""

    exit_code = 69


class CatalogueError(HisarError):
    """A model cannot be found, fetched, verified or read (EX_NOINPUT)."""

    exit_code = 66


class StoreError(HisarError):
    """The database cannot be reached, or is of another version (EX_IOERR)."""

    exit_code = 74


class EngineError(HisarError):
    """The engine refused a request, lost it, or cannot be reached (EX_SOFTWARE).

    `retry_after_s` is set where trying again can help.
    """

    exit_code = 70

    def __init__(
        self, code: str, message: str, *, hint: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(code, message, hint=hint)
        self.retry_after_s = retry_after_s


class RequestError(HisarError):
    """A request is refused at the door.

    `status` is the HTTP status; `param` names the offending field (a path such as
    `messages[0].role`); `retry_after_s` is set where trying again can help; `should_retry` is
    sent as `x-should-retry` where the client must not guess.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int,
        param: str | None = None,
        hint: str = "",
        retry_after_s: float | None = None,
        should_retry: bool | None = None,
    ) -> None:
        super().__init__(code, message, hint=hint)
        self.status = status
        self.param = param
        self.retry_after_s = retry_after_s
        self.should_retry = should_retry
