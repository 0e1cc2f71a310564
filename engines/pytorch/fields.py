"""Typed reading of a model's settings, with an error that names the file and the key."""

import math
from collections.abc import Mapping
from typing import Any, cast

from appliance.errors import CatalogueError


class Fields:
    """Settings of one file. A key that is absent and one that is null are the same."""

    def __init__(self, values: Mapping[str, Any], file: str, prefix: str = "") -> None:
        self._values = values
        self.file = file
        self._prefix = prefix

    def with_values(self, **values: object) -> "Fields":
        """The same settings with others in place of some."""
        return Fields({**self._values, **values}, self.file, self._prefix)

    def with_defaults(self, **defaults: object) -> "Fields":
        """The same settings with values for those that are absent."""
        return self.with_values(**{k: v for k, v in defaults.items() if not self.has(k)})

    def has(self, key: str) -> bool:
        """Whether the key is there with a value."""
        return self._values.get(self._prefix + key) is not None

    def get(self, key: str) -> Any:  # noqa: ANN401
        """The value as it stands; None where there is none."""
        return self._values.get(self._prefix + key)

    def integer(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number. Without a default it must be there."""
        value = self._required(key, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.invalid(f"must be a whole number of at least {least}", of=key)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number that is not negative."""
        value = self._required(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        number = float(cast("float", value)) if is_number else math.nan
        if not (math.isfinite(number) and number >= 0):
            raise self.invalid("must be a number of at least 0", of=key)
        return number

    def positive(self, key: str, default: float | None = None) -> float:
        """A finite number above 0."""
        number = self.number(key, default)
        if not number:
            raise self.invalid("must be more than 0", of=key)
        return number

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self._required(key, default)
        if not isinstance(value, bool):
            raise self.invalid("must be true or false", of=key)
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._required(key, default)
        if not isinstance(value, str):
            raise self.invalid("must be text", of=key)
        return value

    def nested(self, key: str) -> "Fields":
        """The settings inside a key; none where it is absent."""
        value = self.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.invalid("must be an object", of=key)
        return Fields(value or {}, self.file)

    def invalid(self, what: str, *, of: str) -> CatalogueError:
        """The error for a setting."""
        message = f"{self.file}: {self._prefix}{of} {what}"
        return CatalogueError("model.config_invalid", message)

    def _required(self, key: str, default: object) -> object:
        value = self.get(key)
        if value is None and default is None:
            raise self.invalid("is missing", of=key)
        return default if value is None else value
