"""The published vectors of switches and of EVs: uN hops, halves of an EV, templates, formats."""

from __future__ import annotations

import json
from ipaddress import IPv6Address
from typing import Any

import numpy as np
import pytest

from openmrc.jit import compiled, records
from openmrc.wire import srv6
from openmrc.wire.ev import from_wire, to_wire
from openmrc.wire.profile import Format, FormatField, Masked
from tests.wire.vectors import ACCEPTED, ROOT, VECTORS, array, frame_of

SWITCHED = [name for name, v in ACCEPTED.items() if "switched_from" in v]
EXPANSIONS = json.loads((ROOT / "conformance/expansions.json").read_text())


def number(text: str) -> int:
    return int(IPv6Address(text)) if ":" in text else int(text, 0)


def only_switch(own: int, beyond: int) -> srv6.Tables:
    """A switch with one way on, port 7, to whoever has the uSID `beyond`."""
    switch = records(1, srv6.TABLE)
    switch[0].own, switch[0].port0, switch[0].slot_bits = own, 7, 1
    return srv6.Tables(switch, np.full(2, beyond << 16, np.uint32))


@pytest.mark.parametrize("name", SWITCHED)
def test_a_switch_makes_the_next_vector_of_the_one_before(name: str) -> None:
    vector = ACCEPTED[name]
    frame = array(frame_of(VECTORS[vector["switched_from"]]))
    beyond = int(IPv6Address(vector["headers"]["outer IPv6"]["dst"])) >> 80 & 0xFFFF
    beyond = vector.get("link_usid", beyond)
    port = srv6.forward_frame(frame, frame.size, only_switch(vector["at_usid"], beyond), 0)
    assert port == 7
    assert frame.tobytes().hex() == vector["frame"]


def test_the_hops_lead_from_nic_to_nic() -> None:
    assert len(SWITCHED) == 6
    assert ACCEPTED["ua-2"]["headers"]["outer IPv6"]["dst"] == "2001:db8:1009::"
    assert ACCEPTED["un-3"]["headers"]["outer IPv6"]["dst"] == "2001:db8:1009::"


@compiled
def _halves(ev, swapped):  # type: ignore[no-untyped-def]
    both = to_wire(ev, swapped)
    return both >> 16, both & 0xFFFF, from_wire(both >> 16, both & 0xFFFF, swapped)


@pytest.mark.parametrize("case", EXPANSIONS["halves"])
def test_the_halves_of_an_ev(case: dict[str, Any]) -> None:
    ev = number(case["ev"])
    assert _halves(ev, int(case["swapped"])) == (case["src_port"], case["flow_label"], ev)


@pytest.mark.parametrize("case", EXPANSIONS["templates"])
def test_a_template_gives_the_carriers(case: dict[str, Any]) -> None:
    names = ("template", "template_mask", "ps_mask", "port_mask")
    template = Masked(*(number(case[name]) for name in names))
    for one in case["evs"]:
        ev = number(one["ev"])
        assert IPv6Address(template.address(ev)) == IPv6Address(one["carrier"])
        assert template.port(ev) == one["port"]


@pytest.mark.parametrize("case", EXPANSIONS["formats"])
def test_a_format_gives_the_addresses(case: dict[str, Any]) -> None:
    fields = tuple(FormatField(*(number(value) for value in field)) for field in case["fields"])
    found = Format(case["mode"], fields)
    for one in case["evs"]:
        ev = number(one["ev"])
        if "on_wire" in one:
            assert found.expand(ev) == number(one["on_wire"])
        else:
            assert [str(IPv6Address(each)) for each in found.addresses(ev)] == one["addresses"]
