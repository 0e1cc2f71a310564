"""The manual and the code say the same: every error code, parameter and configuration key."""

import ast
import re
from collections.abc import Iterator
from typing import Final

import msgspec
import pytest

from appliance.config_file import key_paths
from gateway.wire import (
    anthropic,
    openai_chat,
    openai_completions,
    openai_embeddings,
    openai_responses,
    vllm_tokens,
)
from gateway.wire.openai_params import UNSUPPORTED_SPELLINGS
from gateway.wire.schema import MAX_TURNS
from tests.house.source import ROOT, modules, tree_of

MANUAL: Final = ROOT / "appliance" / "manual"
_CODE: Final = re.compile(r"[a-z]+\.[a-z_]+")
# A constant that looks like a code and is not one: the second word is a kind of file.
_FILES: Final = frozenset(
    {"toml", "json", "db", "key", "log", "lock", "safetensors", "sock", "txt"}
)


def codes_raised() -> set[str]:
    """Codes given to whatever builds an error: first of several arguments, or `code=`."""
    return {
        code
        for path in modules()
        for call in ast.walk(tree_of(path))
        if isinstance(call, ast.Call)
        for code in _codes_of_call(call)
    }


def _codes_of_call(call: ast.Call) -> Iterator[str]:
    is_error = isinstance(call.func, ast.Name) and call.func.id.endswith("Error")
    if call.args and (is_error or (len(call.args) > 1 and _is_message(call.args[1]))):
        yield from _codes_in(call.args[0])
    for keyword in call.keywords:
        if keyword.arg == "code":
            yield from _codes_in(keyword.value)


def _is_message(node: ast.expr) -> bool:
    if isinstance(node, ast.JoinedStr):
        return True
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value


def _codes_in(node: ast.AST) -> Iterator[str]:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    if is_text and _CODE.fullmatch(node.value) and node.value.partition(".")[2] not in _FILES:
        yield node.value


def codes_written() -> set[str]:
    """Every constant in an area that errors are raised in: tables and defaults hold codes too."""
    areas = {code.partition(".")[0] for code in codes_raised()}
    return {
        code
        for path in modules()
        for node in _without_logger_names(tree_of(path))
        for code in _codes_in(node)
        if code.partition(".")[0] in areas
    }


def _without_logger_names(tree: ast.Module) -> Iterator[ast.AST]:
    names = {
        id(argument)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "getLogger"
        for argument in call.args
    }
    return (node for node in ast.walk(tree) if id(node) not in names)


def test_every_error_code_has_an_entry_and_every_entry_a_code() -> None:
    entries = re.findall(r"^### (\S+)$", (MANUAL / "errors.md").read_text(), re.MULTILINE)
    missing, stale = codes_written() - set(entries), set(entries) - codes_written()
    assert not missing, f"not in errors.md: {', '.join(sorted(missing))}"
    assert not stale, f"only in errors.md: {', '.join(sorted(stale))}"
    assert entries == sorted(set(entries))


def test_every_entry_says_something() -> None:
    text = (MANUAL / "errors.md").read_text()
    for entry in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        code, _, words = entry.partition("\n")
        assert len(words.split()) >= 4, code


def test_every_configuration_key_is_explained() -> None:
    text = (MANUAL / "configuration.md").read_text()
    paths = {".".join(path) for path in key_paths()}
    tables = {".".join(path[:-1]) for path in key_paths() if len(path) > 1}
    explained = set(re.findall(r"^\| `([a-z_.]+)` \|", text, re.MULTILINE))
    assert explained == paths - tables


@pytest.mark.parametrize(
    ("heading", "request_type", "unsupported"),
    [
        (
            "Chat completions",
            openai_chat.ChatRequest,
            openai_chat.UNSUPPORTED | UNSUPPORTED_SPELLINGS,
        ),
        (
            "Completions",
            openai_completions.CompletionRequest,
            openai_completions.UNSUPPORTED | UNSUPPORTED_SPELLINGS,
        ),
        ("Responses", openai_responses.ResponseRequest, openai_responses.UNSUPPORTED),
        ("Messages", anthropic.MessagesRequest, anthropic.UNSUPPORTED),
        ("Embeddings", openai_embeddings.EmbeddingBody, {}),
        ("Tokenize", vllm_tokens.TokenizeBody, vllm_tokens.UNSUPPORTED),
        ("Detokenize", vllm_tokens.DetokenizeBody, {}),
    ],
)
def test_every_parameter_is_said_to_be_honoured_or_refused(
    heading: str, request_type: type[msgspec.Struct], unsupported: dict[str, object]
) -> None:
    text = (MANUAL / "api.md").read_text()
    section = re.split(r"^## ", text.partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]
    table = dict(re.findall(r"^\| `(\w+)` \| (\w+)", section, re.MULTILINE))
    known = {field.encode_name for field in msgspec.structs.fields(request_type)}
    assert set(table) == known | set(unsupported)
    refused = {name for name, verdict in table.items() if verdict == "refused"}
    assert refused == set(unsupported)


def test_the_bound_on_turns_is_said_once_for_every_route() -> None:
    text = (MANUAL / "api.md").read_text()
    assert text.count(f"at most {MAX_TURNS:,} turns") == 1
    assert text.count(f"{MAX_TURNS:,}") == 1


def test_the_index_names_every_page() -> None:
    named = set(re.findall(r"\]\((\w+\.md)\)", (MANUAL / "index.md").read_text()))
    assert named == {page.name for page in MANUAL.glob("*.md")} - {"index.md"}
