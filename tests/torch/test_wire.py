"""Which wire the environment chooses, and what it says when it cannot."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

from openmrc.errors import InputError
from openmrc.torch import wire


class Told(dict[str, str]):
    """A store in which other ranks have spoken already."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def get(self, key: str) -> bytes:  # type: ignore[override]
        return self[key].encode()


def test_ranks_must_name_as_many_planes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENMRC_HOST", raising=False)
    monkeypatch.setenv(wire.INTERFACES_VARIABLE, "127.0.0.1")
    store = Told({"host/0": "here", "host/1": "elsewhere", "planes/1": "3"})
    why = (
        r"^rank 1 has 3 planes, rank 0 has 1 \(127\.0\.0\.1\): name the same number, in the same"
        " order, in OPENMRC_INTERFACES$"
    )
    with pytest.raises(InputError, match=why):
        wire.open_wire(store, 0, [1])


def test_what_is_named_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENMRC_HOST", raising=False)
    monkeypatch.setenv(wire.INTERFACES_VARIABLE, "nothing0")
    with pytest.raises(InputError, match=r"^plane nothing0: no interface with an address"):
        wire.open_wire(Told({"host/0": "here", "host/1": "elsewhere"}), 0, [1])
