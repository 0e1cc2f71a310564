"""As many different prompts as wanted: questions, texts and code to copy, Turkish, long ones."""

from random import Random
from typing import Final

_TOPICS: Final = (
    "bicycles",
    "the sea",
    "bread",
    "old maps",
    "electric cars",
    "the moon",
    "bees",
    "winter",
    "chess",
    "Istanbul",
    "a lost key",
    "tea",
)
_ASKING: Final = (
    "Tell me {number} facts about {topic}.",
    "Write a story of {number} lines about {topic}.",
    "Why do people care about {topic}? Give {number} reasons.",
    "Write a letter to {number} friends about {topic}.",
)
_TURKISH_TOPICS: Final = (
    "deniz",
    "ekmek",
    "eski haritalar",
    "ay",
    "arılar",
    "kış",
    "satranç",
    "çay",
)
_TURKISH_ASKING: Final = (
    "Bana {topic} hakkında {number} cümle yaz.",
    "{number} çocuk için {topic} üzerine kısa bir öykü anlat.",
    "İnsanlar neden {topic} ile ilgilenir? {number} neden say.",
)
_NAMES: Final = ("Anna", "Murat", "Chloe", "Jan", "Ayşe", "Omar", "Lin", "Maria")
_THINGS: Final = ("lamps", "tables", "stones", "books", "boats", "clocks", "keys", "glasses")
_PLACES: Final = ("the harbour", "Oslo", "the old library", "İzmir", "the north gate", "the market")
_LONG_SENTENCES: Final = 44
# One in so many prompts is a long one; the other kinds take turns.
_LONG_ONE_IN: Final = 25


def chat_prompts(count: int) -> list[str]:
    """So many, all different, as the model's chat template writes them."""
    return [
        f"<|im_start|>user\n{_text(number)}<|im_end|>\n<|im_start|>assistant\n"
        for number in range(1, count + 1)
    ]


def _text(number: int) -> str:
    kinds = (_question, _copy, _code, _turkish)
    write = _long if number % _LONG_ONE_IN == 0 else kinds[number % len(kinds)]
    return write(number, Random(number))  # noqa: S311


def _question(number: int, draw: Random) -> str:
    return draw.choice(_ASKING).format(number=number, topic=draw.choice(_TOPICS))


def _copy(number: int, draw: Random) -> str:
    return f"Repeat this exactly: {number}. {_sentence(draw)} {_sentence(draw)}"


def _code(number: int, draw: Random) -> str:
    name = draw.choice(_THINGS)
    return (
        f"Rename {name} to items:\n\ndef count_{name}({name}):\n    return {number} + len({name})\n"
    )


def _turkish(number: int, draw: Random) -> str:
    return draw.choice(_TURKISH_ASKING).format(number=number, topic=draw.choice(_TURKISH_TOPICS))


def _long(number: int, draw: Random) -> str:
    sentences = " ".join(_sentence(draw) for _ in range(_LONG_SENTENCES))
    return f"Summarise list {number}. {sentences}"


def _sentence(draw: Random) -> str:
    name, things, place = draw.choice(_NAMES), draw.choice(_THINGS), draw.choice(_PLACES)
    return f"{name} brought {draw.randint(2, 99)} {things} to {place} before noon."
