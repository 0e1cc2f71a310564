"""Which files make up a model."""

import pytest

from appliance.errors import CatalogueError
from appliance.sources.weights import Selection, select

PARTS = tuple(f"q4/m-0000{number}-of-00003.gguf" for number in (1, 2, 3))
FOLDER = ("config.json", "model.safetensors", "tokenizer.json", "README.md", "onnx/config.json")


@pytest.mark.parametrize(
    ("paths", "wanted", "chosen"),
    [
        (["README.md", "m.gguf"], "", (("m.gguf",), "m.gguf", "llamacpp")),
        (["a.gguf", "b.gguf"], "b.gguf", (("b.gguf",), "b.gguf", "llamacpp")),
        (PARTS, "", (PARTS, PARTS[0], "llamacpp")),
        ([*PARTS, "x.gguf"], PARTS[0], (PARTS, PARTS[0], "llamacpp")),
        (FOLDER, "", (FOLDER[:3], "", "pytorch")),
    ],
)
def test_a_model_s_files_are_chosen(
    paths: tuple[str, ...], wanted: str, chosen: tuple[tuple[str, ...], str, str]
) -> None:
    files, main_file, runner = chosen
    selection = select(paths, origin="here", wanted=wanted)
    assert selection == Selection(paths=files, main_file=main_file, runner=runner)


@pytest.mark.parametrize(
    ("paths", "wanted", "code"),
    [
        ([], "", "model.source_not_found"),
        (["README.md"], "", "model.source_not_found"),
        (["model.safetensors"], "", "model.source_not_found"),
        (["a.gguf"], "b.gguf", "model.source_not_found"),
        (["a.gguf", "b.gguf"], "", "model.source_ambiguous"),
        (PARTS[:2], "", "model.source_not_found"),
    ],
)
def test_what_cannot_be_chosen_is_refused(paths: list[str], wanted: str, code: str) -> None:
    with pytest.raises(CatalogueError) as refused:
        select(paths, origin="here", wanted=wanted)
    assert refused.value.code == code
