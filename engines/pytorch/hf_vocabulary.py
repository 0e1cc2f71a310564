"""The vocabulary of a Hugging Face folder: tokenizer.json, and what other files say of it."""

import json
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct
from tokenizers import Tokenizer

from appliance.errors import CatalogueError
from engines.pytorch.hf_config import read_json
from engines.pytorch.vocabulary import (
    Vocabulary,
    byte_level_piece,
    make_plain,
    sentencepiece_piece,
)

_FILE: Final = "tokenizer.json"
# Models round their vocabularies up; the largest padding among known ones (Phi 2) is 1.8 %.
_MOST_PADDING: Final = 0.02


class _AddedToken(Struct, frozen=True, kw_only=True):
    """A token that is found before words are, as the file describes it."""

    id: int
    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = False


def read_hf_vocabulary(folder: Path, num_rows: int) -> Vocabulary:
    """The vocabulary for a model whose embedding has `num_rows` rows.

    Raises CatalogueError `model.tokenizer_broken` or `model.vocabulary_mismatch`.
    """
    described = _read_description(folder / _FILE)
    added = [token for token in described["added_tokens"] if token["id"] < num_rows]
    splitter = _parse({**described, "added_tokens": added, "truncation": None, "padding": None})
    texts = {token_id: text for text, token_id in splitter.get_vocab().items()}
    _check_sizes(max(texts, default=-1) + 1, num_rows)

    settings = _read_settings(folder)
    control = {token["id"]: token["content"] for token in added if token["special"]}
    bos_text, eos_text = _text(settings.get("bos_token")), _text(settings.get("eos_token"))
    around = splitter.encode("", add_special_tokens=True).ids
    starts_with_bos = bool(bos_text) and around[:1] == [splitter.token_to_id(bos_text)]
    to_bytes = byte_level_piece if _is_byte_level(described) else sentencepiece_piece
    return Vocabulary(
        splitter=splitter,
        plain=make_plain(splitter),
        pieces=tuple(
            b"" if number in control or number not in texts else to_bytes(texts[number])
            for number in range(max(texts) + 1)
        ),
        control=frozenset(control.values()),
        defined=frozenset(token["content"] for token in added if not token["special"]),
        cuts_at_control=not any(token["lstrip"] or token["single_word"] for token in added),
        ending_ids=_ending_ids(folder, splitter.token_to_id(eos_text) if eos_text else None),
        adds_bos=bool(bos_text) and _flag(settings.get("add_bos_token"), starts_with_bos),
        closing_ids=tuple(around[1:] if starts_with_bos else around),
        bos_text=bos_text,
        eos_text=eos_text,
        chat_template=_chat_template(folder, settings),
    )


def _read_description(path: Path) -> dict[str, Any]:
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _broken(str(error).partition(": ")[0]) from None
    if not isinstance(described, dict):
        raise _broken("it is not an object")
    try:
        added = msgspec.convert(described.get("added_tokens") or [], list[_AddedToken])
    except msgspec.ValidationError as error:
        raise _broken(f"added_tokens: {error}") from None
    return {**described, "added_tokens": msgspec.to_builtins(added)}


def _parse(described: dict[str, Any]) -> Tokenizer:
    try:
        return Tokenizer.from_str(json.dumps(described))
    except Exception as error:  # noqa: BLE001  # the library raises no narrower class
        raise _broken(str(error)) from None


def _broken(what: str) -> CatalogueError:
    message = f"{_FILE} cannot be used: {what}"
    return CatalogueError("model.tokenizer_broken", message, hint="fetch the model again")


def _check_sizes(num_tokens: int, num_rows: int) -> None:
    if num_tokens > num_rows:
        what = f"{_FILE} has {num_tokens} tokens, for which the weights have {num_rows} rows"
    elif num_rows - num_tokens > _MOST_PADDING * num_rows:
        what = f"the weights have {num_rows} rows, for which {_FILE} has {num_tokens} tokens"
    else:
        return
    message = f"{what} (vocab_size in config.json, the tensor embed_tokens)"
    raise CatalogueError("model.vocabulary_mismatch", message)


def _read_settings(folder: Path) -> dict[str, Any]:
    """What tokenizer_config.json says, if it is there."""
    path = folder / "tokenizer_config.json"
    return read_json(path) if path.is_file() else {}


def _text(token: object) -> str:
    """The text of a token that is given as such, or as an object with more about it."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else ""


def _flag(value: object, default: bool) -> bool:
    return value if isinstance(value, bool) else default


def _is_byte_level(described: dict[str, Any]) -> bool:
    return '"ByteLevel"' in json.dumps([described.get("decoder"), described.get("pre_tokenizer")])


def _ending_ids(folder: Path, eos_id: int | None) -> frozenset[int]:
    """The tokens that end an answer, by any of the files that may say so."""
    ids: set[Any] = {eos_id}
    for name in ("generation_config.json", "config.json"):
        if (folder / name).is_file():
            found = read_json(folder / name).get("eos_token_id")
            ids.update(found if isinstance(found, list) else [found])
    return frozenset(number for number in ids if isinstance(number, int))


def _chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    """The template of its own file, or that among the settings; of several the default one."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8", errors="replace")
    found = settings.get("chat_template")
    if isinstance(found, list):
        named = {
            str(item.get("name")): item.get("template") for item in found if isinstance(item, dict)
        }
        found = named.get("default", next(iter(named.values()), None))
    return found if isinstance(found, str) else None
