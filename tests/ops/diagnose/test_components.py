"""The table of what can break."""

from __future__ import annotations

import pytest

from openmrc.fabric import fat_tree, places
from openmrc.fabric.kinds import LINKS_DEFAULT
from openmrc.fabric.outline import outline
from openmrc.ops.diagnose.components import HALF, table
from tests.ops.diagnose.made import FABRIC, TABLE, component


@pytest.mark.parametrize(
    "where", ["plane 1 t0 2 > t1 3", "nic 5 plane 0", "plane 1 t1 2", "nic 5", "plane 1 t0 *"]
)
def test_a_place_has_the_links_that_a_fault_of_that_name_has(where: str) -> None:
    ports = {*places.ports(FABRIC, where).tolist()}
    if where == "plane 1 t0 *":  # of two tiers that is the whole plane
        where = "plane 1"
    assert {*component(where).ports} >= ports


def test_a_transceiver_has_the_links_that_a_fault_of_that_name_has() -> None:
    name = "plane 0 t0 1 transceiver 1"
    links = places.transceivers(FABRIC, name, LINKS_DEFAULT).targets.tolist()
    both = {int(it) for port in links for it in (port, FABRIC.port_reverse[port])}
    assert {*component(name).ports} == both


def test_no_two_components_have_the_same_links() -> None:
    every = [frozenset(row.ports) for row in TABLE.rows]
    assert len({*every}) == len(every)


def test_the_components_of_a_port_are_those_that_have_it() -> None:
    for port in range(0, FABRIC.n_ports, 7):
        owners = TABLE.of_port[port]
        assert {*owners[owners >= 0].tolist()} == {
            i for i, row in enumerate(TABLE.rows) if port in row.ports
        }
    assert (TABLE.of_port[-1] < 0).all()


def test_of_two_that_explain_as_much_the_smaller_is_said() -> None:
    """A link before the cable, the cable before the transceiver, that before the switch."""
    names = (
        "plane 0 t0 1 > t1 0",
        "plane 0 t0 1 - t1 0",
        "plane 0 t0 1 transceiver 1",
        "plane 0 t0 1",
    )
    nats = [TABLE.nats[TABLE.rows.index(component(name))] for name in names]
    assert nats == sorted(nats)


def test_where_switches_hash_a_half_is_that_of_one_of_several_switches() -> None:
    around = outline(FABRIC)
    rows = table(around.fabric, around, FABRIC).rows
    into = [", ".join(f"plane 1 t0 {t0} > t1 {t1}" for t0 in range(4)) for t1 in range(4)]
    (half,) = [row for row in rows if row.kind == HALF and row.where == into[0]]
    assert half.others == tuple(into[1:])


def test_where_switches_hash_a_tier_is_a_component_too() -> None:
    whole = fat_tree(16, 10**11, 2, 2, 0, 0, tiers=3)
    around = outline(whole)
    names = {row.where: row.ports for row in table(around.fabric, around, whole).rows}
    every = [int(it) for port in names["plane 0 t0 *"] for it in around.ports(port)]
    assert {*every} == {*places.ports(whole, "plane 0 t0 *").tolist()}
