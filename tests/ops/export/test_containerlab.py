"""A topology for containerlab: every node and every link once, with the files that it names.

Its public schema is not kept here. To check against it, with `pip install jsonschema`:

    curl -O https://raw.githubusercontent.com/srl-labs/containerlab/main/schemas/clab.schema.json
    OPENMRC_CLAB_SCHEMA=clab.schema.json pytest tests/ops/export/test_containerlab.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from openmrc.verbs import hostfile
from tests.ops.export import walk
from tests.ops.export.conftest import Export

SCHEMA = os.environ.get("OPENMRC_CLAB_SCHEMA", "")
# What the schema takes of a node and of a link of this kind
NODE = {"kind", "image", "binds", "sysctls", "exec", "entrypoint", "cmd", "env"}
LINK = {"type", "endpoints", "mtu"}
END = {"node", "interface", "mac"}


def topology(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "topology.clab.yml").read_text())
    return found


def test_nodes_and_links_are_those_of_the_fabric(exported: Export) -> None:
    out = exported("containerlab", "planes")
    rows = walk.links(out)
    found = topology(out)
    assert set(found) == {"name", "topology"}
    nodes, links = found["topology"]["nodes"], found["topology"]["links"]
    assert set(nodes) == {row[side] for row in rows for side in ("lower", "upper")}
    assert len(nodes) == 2 * (4 + 3) + 8
    assert all(set(node) <= NODE and node["kind"] == "linux" for node in nodes.values())
    assert all(set(link) == LINK and link["type"] == "veth" for link in links)
    ends = [end for link in links for end in link["endpoints"]]
    assert all(set(end) == END for end in ends)
    assert len({(end["node"], end["interface"]) for end in ends}) == len(ends) == 2 * len(rows)
    said = [[(row[side], row[f"{side}_port"]) for side in ("lower", "upper")] for row in rows]
    named = [
        [(end["node"], end["interface"].replace("e", "plane ")) for end in link["endpoints"]]
        for link in links
    ]
    assert named == said
    assert {link["mtu"] for link in links} == {4228}


def test_every_file_that_a_node_binds_is_there(exported: Export) -> None:
    out = exported("containerlab", "planes")
    for node in topology(out)["topology"]["nodes"].values():
        for bind in node["binds"]:
            assert (out / bind.partition(":")[0]).is_file()


def test_a_host_knows_its_gateways_and_answers_for_its_address(exported: Export) -> None:
    out = exported("containerlab", "planes")
    found = topology(out)["topology"]
    far = {}
    for link in found["links"]:
        a, b = link["endpoints"]
        far[a["node"], a["interface"]] = b["mac"]
    rows = {(row["lower"], row["lower_port"]): row["lower_address"] for row in walk.links(out)}
    for nic in range(8):
        content = hostfile.read(out / f"nic{nic}.json")
        _, fabric = hostfile.section(content)
        assert (content["nic"], fabric.n_nics, fabric.n_planes) == (nic, 8, 2)
        lines = found["nodes"][f"nic{nic}"]["exec"]
        for plane, port in enumerate(content["ports"]):
            assert port["gateway_mac"] == far[f"nic{nic}", port["interface"]]
            address = rows[f"nic{nic}", f"plane {plane}"]
            assert f"ip -6 addr add {address}/127 dev {port['interface']} nodad" in lines


@pytest.mark.skipif(not SCHEMA, reason="OPENMRC_CLAB_SCHEMA names no schema of containerlab")
@pytest.mark.parametrize("fabric", ["planes", "three tiers", "links", "smallest"])
def test_containerlabs_own_schema_takes_it(fabric: str, exported: Export) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(Path(SCHEMA).read_text())
    # It has patterns of another language: what it is itself is not checked.
    jsonschema.Draft7Validator(schema).validate(topology(exported("containerlab", fabric)))


def test_what_the_topology_has_is_not_said_to_be_missing(exported: Export) -> None:
    said = (exported("containerlab", "planes") / "cannot.txt").read_text()
    assert "can remove the SID" in said
    assert [word for word in ("MTU", "sr0", "ipv6.conf") if word in said] == []
