"""A device follows a denylist as long as it is fresh, whatever becomes of who wrote it."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openmrc.errors import InputError
from openmrc.fabric.clos import multiplane
from openmrc.fabric.model import Fabric, LongArray
from openmrc.fabric.places import links
from openmrc.verbs.advised import Advice
from openmrc.verbs.denylist import Denylist, Entry

FABRIC = multiplane(8, 4, 10**8, 4, 2, 0, 0)
LINK = "plane 1 t0 0 - t1 1"
SECOND = 10**6


class Fake:
    """What a device would be told."""

    nic = 3

    def __init__(self, fabric: Fabric | None = FABRIC) -> None:
        self.fabric = fabric
        self.told: list[list[int]] = []

    def keep_off(self, denied: LongArray) -> None:
        self.told.append(denied.tolist())

    def totals(self) -> dict[str, int]:
        return {"sent": 100, "again": 2, "set_aside": 1}


def entry(where: str = LINK, **other: Any) -> Entry:
    return replace(Entry(where, 0, None, "loses 100 % of probes", "mapper"), **other)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "denylist.json"


def write(file: Path, made_us: int, *entries: Entry, version: int = 1) -> None:
    file.write_text(json.dumps(Denylist(version, made_us, entries=entries).as_json()))


def test_a_fresh_list_is_kept_to_a_stale_one_and_one_that_is_gone_are_not(file: Path) -> None:
    device, words = Fake(), list[str]()
    write(file, 0, entry())  # of 1970
    advice = Advice(device, str(file), b"", words.append)
    advice.look(5 * SECOND)
    assert device.told == [sorted(links(FABRIC, LINK).tolist())]
    advice.look(30 * SECOND)
    file.unlink()  # whoever wrote it is gone
    advice.look(30 * SECOND)
    assert len(device.told) == 1
    assert len(words) == 1
    assert "the last denylist counts while it is fresh" in words[0]
    advice.look(30 * SECOND + 1)
    assert device.told[1:] == [[]]
    assert len(words) == 1


def test_it_follows_every_change_and_tells_the_device_of_nothing_else(file: Path) -> None:
    device = Fake()
    write(file, 0)
    advice = Advice(device, str(file), b"")
    advice.look(0)
    write(file, 0, entry())
    advice.look(0)
    write(file, 10, entry(reason="loses 90 % of probes"), version=2)
    advice.look(10)
    write(file, 20, entry(), entry("nic 3 plane 0"), version=3)
    advice.look(20)
    write(file, 30, entry(until_us=40), version=4)
    advice.look(30)
    advice.look(40)
    assert [len(told) for told in device.told] == [2, 4, 2, 0]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "no JSON",
        "[]",
        '{"entries": 1}',
        '{"version": 1, "made_us": 1, "entries": [{}]}',
        json.dumps(Denylist(1, 1, entries=(entry("plane 9 t0 0"),)).as_json()),
    ],
)
def test_what_is_no_list_of_this_fabric_changes_nothing(file: Path, content: str) -> None:
    device, words = Fake(), list[str]()
    write(file, 0, entry())
    advice = Advice(device, str(file), b"", words.append)
    advice.look(0)
    file.write_text(content)
    advice.look(0)
    advice.look(0)
    assert len(device.told) == 1
    assert len(words) == 1


def test_where_nobody_listens_nothing_is_denied_and_it_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    device, words = Fake(), list[str]()
    Advice(device, f"http://127.0.0.1:{port}", b"x", words.append).look(0)
    assert device.told == []
    assert "no controller answers" in words[0]


def test_an_address_that_is_none_is_said_and_ends_nothing() -> None:
    words = list[str]()
    Advice(Fake(), "http://127.0.0.1:none", b"x", words.append).look(0)
    assert "no controller" in words[0]


def test_a_job_is_told_to_a_controller_and_not_to_a_file(file: Path) -> None:
    with pytest.raises(InputError, match="OPENMRC_JOB: a file hears of no job"):
        Advice(Fake(), str(file), b"", job="train")


def test_a_device_that_knows_no_paths_is_refused() -> None:
    with pytest.raises(InputError, match=r"OPENMRC_DENYLIST: .* ordinary network"):
        Advice(Fake(None), "denylist.json", b"")


def test_who_would_deny_more_than_a_tenth_denies_nothing(file: Path) -> None:
    device = Fake()
    write(file, 0, *(entry(f"nic {nic} plane 0") for nic in range(5)))
    advice = Advice(device, str(file), b"")
    advice.look(0)
    assert device.told == []
