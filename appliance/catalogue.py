"""Which models exist on this box: what a model is, and the library on disk that holds them."""

from pathlib import Path

from msgspec import Struct


class ModelFile(Struct, frozen=True, kw_only=True):
    """One file of a model, relative to the model's folder."""

    path: str
    size_bytes: int
    sha256: str


class ModelSpec(Struct, frozen=True, kw_only=True):
    """A model in the library. `main_file` is what the runner opens; empty for weightless runners.

    `context_tokens` 0 means: as the model's own file says.
    """

    name: str
    runner: str
    files: tuple[ModelFile, ...] = ()
    main_file: str = ""
    source: str = ""
    licence: str = ""
    context_tokens: int = 0
    created_at: int = 0


class Library:
    """The models on disk under one folder, a folder and a `manifest.json` each."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def list(self) -> tuple[ModelSpec, ...]:
        """Every model, by name."""
        raise NotImplementedError

    def get(self, name: str) -> ModelSpec:
        """The model of that exact name. Raises CatalogueError `model.not_found`."""
        raise NotImplementedError

    def path_of(self, spec: ModelSpec) -> Path:
        """The absolute path of the file a runner opens (the model's folder where there is none)."""
        raise NotImplementedError
