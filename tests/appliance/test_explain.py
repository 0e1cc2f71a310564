"""What the manual says of a code can be asked without a network."""

from appliance.explain import explain


def test_an_entry_is_told_on_one_line() -> None:
    said = explain("key.not_found")
    assert said == "There is no key of that id. `hisar keys list` shows all."


def test_an_unknown_code_is_told_nothing_of() -> None:
    assert explain("no.such_code") == explain("") == ""
