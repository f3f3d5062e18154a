from __future__ import annotations

from openmrc.errors import MESSAGE_MAX, InputError, MissingExtra, OpenMrcError


def test_a_message_is_one_line_whatever_went_into_it() -> None:
    assert str(InputError("a\n  b\tc ")) == "a b c"


def test_a_message_keeps_its_place_and_its_remedy_whatever_is_between() -> None:
    said = str(InputError(f"a.toml:3: unknown word {'x' * 10**6}; write a number"))
    assert len(said) < MESSAGE_MAX + 10
    assert said.startswith("a.toml:3: unknown word xxx")
    assert said.endswith("xxx; write a number")


def test_a_place_goes_in_front() -> None:
    inner = InputError("0 is too few").at("fabric.nics").at("x.toml")
    assert str(inner) == "x.toml: fabric.nics: 0 is too few"


def test_a_missing_extra_says_how_to_get_it() -> None:
    error = MissingExtra("the dissector", "scapy")
    assert str(error) == "the dissector needs an extra: pip install 'openmrc[scapy]'"
    assert isinstance(error, OpenMrcError)
