"""Kinds of option values that several verbs share."""

import math
from typing import Any, Final

import click

# What every database keeps and every message carries.
COUNT: Final = click.IntRange(1, 2**31 - 1)


class FiniteRange(click.FloatRange):
    """A number within bounds; `nan`, which lies neither inside nor outside of them, is none."""

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """The number, or click's complaint."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number
