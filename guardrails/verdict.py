"""What a guardrail says about a text: an action, and where the reasons for it stand."""

from enum import StrEnum

from msgspec import Struct


class Action(StrEnum):
    """What is to be done with a text, mildest first."""

    ALLOW = "allow"
    FLAG = "flag"
    REDACT = "redact"
    BLOCK = "block"


class Finding(Struct, frozen=True, kw_only=True):
    """Where a detector found something: `text[start:end]`. Never the text itself."""

    detector: str
    start: int
    end: int


class Verdict(Struct, frozen=True, kw_only=True):
    """The judgement on one text."""

    action: Action = Action.ALLOW
    findings: tuple[Finding, ...] = ()
