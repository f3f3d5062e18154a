"""What counts as a secret, where it comes from, and what follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmrc.errors import InputError
from openmrc.verbs import secret as secrets

GOOD = bytes(range(16))


def test_what_could_be_drawn_is_accepted() -> None:
    for good in (GOOD, bytes(range(8)) * 2, secrets.new()):
        assert secrets.check(good) == good


@pytest.mark.parametrize(
    ("weak", "why"),
    [
        (b"", "there is no secret"),
        (bytes(range(15)), "has 15 bytes"),
        (bytes(range(7)) * 9, "repeats 7 bytes"),
    ],
)
def test_what_could_be_guessed_is_refused_with_the_remedy(weak: bytes, why: str) -> None:
    with pytest.raises(InputError, match=f"{why}.*make one with: mrc secret"):
        secrets.check(weak)


def test_a_file_or_the_environment_has_it_and_no_error_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(secrets.VARIABLE, raising=False)
    assert secrets.given(None) is None
    with pytest.raises(InputError, match="--secret FILE, or set OPENMRC_SECRET"):
        secrets.needed(None)
    monkeypatch.setenv(secrets.VARIABLE, GOOD.hex())
    assert secrets.needed(None) == GOOD
    (tmp_path / "file").write_text(f"  {GOOD.hex().upper()}\n")
    monkeypatch.setenv(secrets.VARIABLE, "not looked at")
    assert secrets.needed(tmp_path / "file") == GOOD
    spoilt = GOOD.hex()[:-1]
    monkeypatch.setenv(secrets.VARIABLE, spoilt)
    (tmp_path / "spoilt").write_text(spoilt)
    (tmp_path / "bytes").write_bytes(b"\xff" + GOOD)
    for source in (None, tmp_path / "spoilt", tmp_path / "bytes", GOOD.hex()):
        with pytest.raises(InputError) as error:
            secrets.given(source)
        assert spoilt not in str(error.value)


def test_keys_and_token_follow_from_the_secret_alone() -> None:
    """As docs/operators.md says, so that others can compute them."""
    assert secrets.of_agent(GOOD, 4).hex() == KEY_4
    assert secrets.token(GOOD) == TOKEN


KEY_4 = "78a8ea88df00e58d2791ba61da9df14d33f0ed4f35633e8790c78f3011a2f1d6"
TOKEN = "e96af9ea16ca31ae15ae8fd0ee03096567c8dd0200efd7942f4556a21e138278"
