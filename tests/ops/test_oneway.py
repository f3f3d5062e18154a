"""Modules and NICs that are bad in one direction are told as their links in that direction."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from openmrc.fabric import places
from openmrc.ops.oneway import narrowed
from openmrc.ops.records import Record
from openmrc.ops.together import TRANSCEIVER, Finding
from tests.ops.test_why import FABRIC, record

UP = tuple(f"plane 1 t0 1 > t1 {i}" for i in range(8))
LOSSES = [(q, 1, uplink, 3, 20.0 + q, 4) for q in range(8, 16) for uplink in range(8)]


def module(number: int, links: tuple[str, ...], rate: float = 0.04) -> Finding:
    """One of T0 1 of plane 1; its uplinks have modules 2 and 3."""
    where = f"plane 1 t0 1 transceiver {number}"
    return Finding(
        where, TRANSCEIVER, (), (), False, rate, 40, 20.0, 35.0, 3, 2, 1, 400.0, 50.0, links=links
    )  # fmt: skip


def seen(back: int, lost_back: int = 0) -> Record:
    """So many packets cross each link down to T0 1 of plane 1, and so many are lost there."""
    one = record(LOSSES)
    down = places.links(FABRIC, "plane 1 t0 1 < t1 *").tolist()
    more = pl.DataFrame({"port": down, "packets": [back] * len(down)}).with_columns(
        from_us=0.0, until_us=one.links["until_us"][0], trimmed=0.0
    )
    links = pl.concat([one.links, more.select(one.links.columns)], how="vertical_relaxed")
    paths = one.paths
    if lost_back:
        answer = one.paths.head(1).with_columns(
            src=pl.col("dst"), dst=pl.col("src"), lost=pl.lit(lost_back)
        )
        paths = pl.concat([paths, answer], how="vertical_relaxed")
    return replace(one, links=links, paths=paths)


def told(one: Record, *findings: Finding) -> list[tuple[str, str]]:
    return [(it.where, it.kind) for it in narrowed(one, findings)]


def test_a_module_that_loses_one_way_is_its_links_that_way() -> None:
    assert told(seen(100), module(2, UP[:3])) == [(", ".join(UP[:4]), "link")]


@pytest.mark.parametrize(
    ("one", "links"),
    [
        (seen(50), UP[:4]),  # too few the other way: 8 losses would be expected
        (seen(100, 5), UP[:4]),  # some lost that way too
        (seen(100), (*UP[:3], UP[3].replace(">", "<"))),
        (seen(100), (*UP[:3], UP[3].replace(">", "-"))),
    ],
)
def test_else_it_is_the_module(one: Record, links: tuple[str, ...]) -> None:
    assert told(one, module(2, links)) == [("plane 1 t0 1 transceiver 2", TRANSCEIVER)]


def test_modules_with_all_uplinks_of_a_switch_are_these() -> None:
    both = [module(2, UP[:4]), module(3, UP[4:])]
    assert told(seen(100), *both) == [("plane 1 t0 1 > t1 *", "link")]
    assert told(seen(0), *both) == [("plane 1 t0 1 - t1 *", "link")]
    assert len(told(seen(100), both[0], replace(both[1], since_us=200.0))) == 2
    assert len(told(seen(100), both[0], module(0, ()))) == 2


def test_all_modules_of_a_switch_are_the_switch() -> None:
    nics = tuple(f"nic {nic} plane 1 - t0" for nic in range(8, 16))
    parts = (nics[:4], nics[4:], UP[:4], UP[4:])
    every = [module(number, links) for number, links in enumerate(parts)]
    assert told(seen(0), *every) == [("plane 1 t0 1", "switch")]
    assert told(seen(0), *every[:2]) == [("plane 1 t0 1", "switch")]  # all its packets cross these
    assert len(told(seen(0), every[0], every[2])) == 2


def test_a_nic_that_damages_what_it_sends_gets_everything_whole() -> None:
    ports = tuple(f"nic 8 plane {plane} > t0" for plane in range(2))
    nic = replace(module(0, ports), where="nic 8", kind="nic")
    assert told(seen(0), nic) == [("nic 8", "nic")]
    one = seen(0)
    to_nic = places.links(FABRIC, "nic 8 plane * < t0").tolist()
    more = pl.DataFrame({"port": to_nic, "packets": [200] * 2}).with_columns(
        from_us=0.0, until_us=one.links["until_us"][0], trimmed=0.0
    )
    links = pl.concat([one.links, more.select(one.links.columns)], how="vertical_relaxed")
    assert told(replace(one, links=links), nic) == [("nic 8 plane * > t0", "link")]
