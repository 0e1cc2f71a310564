"""What the manual says of an error code: it comes with the box, so it can be asked offline."""

import re
from pathlib import Path
from typing import Final

_PAGE: Final = Path(__file__).parent / "manual" / "errors.md"


def explain(code: str) -> str:
    """The entry of a stable code, on one line; empty where there is none."""
    entries = re.split(r"^### ", _PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    words = (entry.partition("\n") for entry in entries)
    said = next((text for name, _, text in words if name.strip() == code), "")
    return " ".join(re.split(r"^#", said, flags=re.MULTILINE)[0].split())
