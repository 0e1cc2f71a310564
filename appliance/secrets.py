"""The box's own secret keys: where they lie, who may read them, what is derived from them.

Two random keys of 256 bits, one file each under `secrets/`, made once and never changed. Losing
`pepper` makes every API key useless; losing `cache_salt` only empties the prefix caches.
"""

import hmac
import os
import secrets
import tempfile
from pathlib import Path
from typing import Final

from msgspec import Struct

from appliance.errors import MachineError
from appliance.home import Home

_KEY_BYTES: Final = 32
_SALT_BYTES: Final = 16
_OTHERS: Final = 0o077


class SecretBytes:
    """Bytes that show themselves only when asked: `repr`, `str` and logs see a mask."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        """The secret itself."""
        return self._value

    def __repr__(self) -> str:
        return "SecretBytes(***)"


class Secrets(Struct, frozen=True, kw_only=True):
    """The secret keys of one box."""

    pepper: SecretBytes
    salt_key: SecretBytes

    def cache_salt(self, tenant_id: str) -> bytes:
        """What separates this tenant's cached prefixes from everyone else's, 16 bytes."""
        return hmac.digest(self.salt_key.reveal(), tenant_id.encode(), "sha256")[:_SALT_BYTES]


def load_secrets(home: Home) -> Secrets:
    """Read the secret keys, making them first where they do not exist yet.

    Raises MachineError `secrets.exposed`, `secrets.damaged` or `secrets.unreadable`.
    """
    return Secrets(
        pepper=SecretBytes(_load_key(home.secrets / "pepper")),
        salt_key=SecretBytes(_load_key(home.secrets / "cache_salt")),
    )


def write_private(path: Path, text: str, *, replace: bool = False) -> bool:
    """Write a file that only its owner can read, whole or not at all; False where one stood.

    Of several processes that write it at once, one wins. With `replace` the last one does.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    fresh = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            fresh.replace(path)
        else:
            path.hardlink_to(fresh)
    except FileExistsError:
        return False
    finally:
        fresh.unlink(missing_ok=True)
    return True


def _load_key(path: Path) -> bytes:
    try:
        if not path.exists():
            write_private(path, secrets.token_hex(_KEY_BYTES) + "\n")
        mode = path.stat().st_mode
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise MachineError(
            "secrets.unreadable",
            f"cannot read or make the secret key {path}: {error.strerror}",
            hint="the user that runs the box must own this file and its folder",
        ) from error
    if mode & _OTHERS:
        raise MachineError(
            "secrets.exposed",
            f"the secret key {path} can be read by other users (mode {mode & 0o777:04o})",
            hint=f"if nobody else has read it: chmod 600 '{path}'",
        )
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise MachineError(
            "secrets.damaged",
            f"the secret key {path} is damaged: it must hold {2 * _KEY_BYTES} hexadecimal digits",
            hint="restore it from a backup",
        )
    return key
