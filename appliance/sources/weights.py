"""Which files of a folder or repository make up a model, and which of them a runner opens."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

from msgspec import Struct

from appliance.errors import CatalogueError

_SHARD: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})\.gguf")
_HUGGING_FACE_SUFFIXES: Final = (".safetensors", ".json", ".txt", ".model", ".jinja")


class Selection(Struct, frozen=True, kw_only=True):
    """The chosen files. `main_file` is empty for a Hugging Face folder, which is opened whole."""

    paths: tuple[str, ...]
    main_file: str
    runner: str


def select(paths: Iterable[str], *, origin: str, wanted: str = "") -> Selection:
    """Choose a model's files among `paths`: the GGUF (all its shards), else the safetensors set.

    `wanted` names the GGUF where there are several. Raises CatalogueError `model.source_not_found`
    or `model.source_ambiguous`, naming `origin`.
    """
    names = sorted(paths)
    if wanted:
        return _wanted(names, wanted, origin)
    heads = [name for name in names if name.endswith(".gguf") and _is_head(name)]
    if len(heads) > 1:
        raise CatalogueError(
            "model.source_ambiguous",
            f"{origin} holds {len(heads)} GGUF files",
            hint="name one of them: " + ", ".join(heads[:12]),
        )
    if heads:
        return Selection(paths=_shards(heads[0], names), main_file=heads[0], runner="llamacpp")
    return _hugging_face(names, origin)


def _wanted(names: list[str], wanted: str, origin: str) -> Selection:
    if wanted not in names:
        raise CatalogueError(
            "model.source_not_found",
            f"{origin} holds no file {wanted!r}",
            hint="it holds: " + ", ".join(names[:12]),
        )
    return Selection(paths=_shards(wanted, names), main_file=wanted, runner="llamacpp")


def _hugging_face(names: list[str], origin: str) -> Selection:
    top = [name for name in names if "/" not in name and name.endswith(_HUGGING_FACE_SUFFIXES)]
    if "config.json" not in top or not any(name.endswith(".safetensors") for name in top):
        raise CatalogueError(
            "model.source_not_found",
            f"{origin} holds neither a GGUF file nor config.json with safetensors",
            hint="give a GGUF file, or a folder that holds a model",
        )
    return Selection(paths=tuple(top), main_file="", runner="pytorch")


def _is_head(name: str) -> bool:
    shard = _SHARD.fullmatch(PurePosixPath(name).name)
    return shard is None or int(shard["number"]) == 1


def _shards(head: str, names: list[str]) -> tuple[str, ...]:
    shard = _SHARD.fullmatch(PurePosixPath(head).name)
    if shard is None:
        return (head,)
    parent = PurePosixPath(head).parent
    total = int(shard["total"])
    parts = [
        (parent / f"{shard['stem']}-{number:05}-of-{total:05}.gguf").as_posix()
        for number in range(1, total + 1)
    ]
    if missing := [part for part in parts if part not in names]:
        raise CatalogueError("model.source_not_found", f"the part {missing[0]} is missing")
    return tuple(parts)
