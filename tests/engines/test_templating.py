"""Chat templates are programs from strangers: they render, and can do nothing else."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.errors import RequestError
from engines.templating import TemplateProcess

Start = Callable[[str], TemplateProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[TemplateProcess] = []

    def start_one(template: str) -> TemplateProcess:
        started.append(TemplateProcess(template))
        return started[-1]

    yield start_one
    for process in started:
        process.close()


def refusal(process: TemplateProcess, **variables: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        process.render(variables)
    assert (caught.value.code, caught.value.status) == ("request.template_failed", 400)
    return caught.value


def test_a_template_renders_as_the_models_authors_expect(start: Start) -> None:
    template = """
    {%- for m in messages %}
        {%- if m.role == 'tool' %}{% continue %}{% endif %}
        {{- '[' ~ m.role ~ ']' ~ m.content | trim }}
        {% generation %}{{ m | tojson }}{% endgeneration %}
    {%- endfor %}"""
    messages = [{"role": "user", "content": " <ğ> & 'x' "}, {"role": "tool", "content": "no"}]
    assert start(template).render({"messages": messages}) == (
        """[user]<ğ> & 'x'\n{"role": "user", "content": " <ğ> & 'x' "}"""
    )


def test_the_date_of_the_machine_is_known(start: Start) -> None:
    assert start("{{ strftime_now('%Y') }}").render({}) == time.strftime("%Y")


def test_a_template_that_refuses_is_quoted(start: Start) -> None:
    """janhq/jan#6254: a template that raises on a system role gave a 500."""
    process = start("{{ raise_exception('Roles must alternate!') }}")
    assert "Roles must alternate!" in refusal(process).message


def test_a_refusal_of_several_lines_is_told_on_one(start: Start) -> None:
    process = start("{{ raise_exception('Roles must\n  alternate:\n\nuser, assistant\n') }}")
    told = "the chat template says: Roles must alternate: user, assistant"
    assert refusal(process).message == told


def test_a_refusal_never_quotes_the_prompt(start: Start) -> None:
    process = start("{{ raise_exception('I dislike ' ~ content) }}")
    message = refusal(process, content="the patient's name").message
    assert "I dislike ..." in message
    assert "patient" not in message


@pytest.mark.parametrize(
    "expression",
    [
        "namespace.__init__.__globals__['__builtins__']['open'](path, 'w').write('x')",
        "cycler.__init__.__globals__.os.popen('touch ' ~ path).read()",
        "''.__class__.__mro__[1].__subclasses__()",
        "(''|attr('__class__')).__mro__",
        "'{0.__class__}'.format(path).missing.missing",
        "lipsum.__globals__['os'].system('touch ' ~ path)",
        "self._TemplateReference__context.environment.loader",
        "strftime_now.__globals__['sys'].modules['os'].system('touch ' ~ path)",
        "messages.append(1)",
    ],
)
def test_no_template_reaches_python(start: Start, expression: str, tmp_path: Path) -> None:
    """abetlen/llama-cpp-python#1462 (CVE-2024-34359), sgl-project/sglang#23660 (CVE-2026-5760)."""
    marker = tmp_path / "marker"
    process = start("{{ " + expression + " }}")
    refusal(process, path=str(marker), messages=[])
    assert not marker.exists()


@pytest.mark.parametrize("template", ["{% include '/etc/passwd' %}", "{% import 'os' as os %}"])
def test_no_template_reads_a_file(start: Start, template: str) -> None:
    refusal(start(template))


def test_a_broken_template_is_refused_with_its_line(start: Start) -> None:
    process = start("{% if x %}\n{{ y }")
    assert "line 2" in refusal(process).message
    assert "line 2" in refusal(process).message


def test_an_endless_template_is_stopped_and_the_next_one_renders(start: Start) -> None:
    process = start(
        "{% if endless %}{% for a in range(99999) %}{% for b in range(99999) %}"
        "{% endfor %}{% endfor %}{% endif %}fine"
    )
    assert "seconds" in refusal(process, endless=True).message
    assert process.render({"endless": False}) == "fine"


@pytest.mark.parametrize("expression", ["'x' * 2000000000", "'x' * 20000000"])
def test_a_template_that_takes_too_much_is_refused(start: Start, expression: str) -> None:
    process = start("{% if big %}{{ " + expression.replace("'x'", "x") + " }}{% endif %}fine")
    refusal(process, big=True, x="x")
    assert process.render({"big": False}) == "fine"


def test_a_lost_process_is_replaced(start: Start) -> None:
    process = start("{{ x }}")
    assert process.render({"x": 1}) == "1"
    process._process.kill()
    process._process.wait()
    assert process.render({"x": 2}) == "2"


def test_a_large_conversation_renders(start: Start) -> None:
    text = "ğ" * 1_900_000
    assert start("{{ text }}").render({"text": text}) == text
