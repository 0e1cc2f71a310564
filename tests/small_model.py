"""Fetches the small default model once, for the tests that need a real one.

`python -m tests.small_model`. Without a network those tests are left out, and this says so.
"""

import sys
from pathlib import Path

from appliance.commands.show import progress
from appliance.errors import HisarError
from appliance.known_models import KNOWN_MODELS
from appliance.sources.fetching import Fetching, digest_of
from appliance.sources.registry import fetch

KNOWN = KNOWN_MODELS["smollm2:135m"]
FILE = KNOWN.files[0]
FOLDER = Path("~/.cache/hisar/test-models").expanduser()
PATH = FOLDER / FILE.path


def is_here() -> bool:
    """Whether the model is on disk, whole."""
    return PATH.is_file() and digest_of(PATH) == FILE.sha256


def main() -> None:
    """Fetch it unless it is here."""
    if is_here():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        with progress() as shown:
            fetch(KNOWN.source, Fetching(folder=FOLDER, progress=shown, expected=KNOWN.files))
    except HisarError as error:
        sys.stderr.write(f"the tests that need a model are left out: {error}\n")


if __name__ == "__main__":
    main()
