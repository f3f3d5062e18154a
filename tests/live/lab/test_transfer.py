"""Verbs on hosts of a lab: both kinds of switches, both ways onto the wire, and a plane that dies.

Hosts are processes with a device each; the test sees what they print.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from openmrc.wire import pcap
from tests.live.lab.conftest import MRC, LabFile, mrc, said_by

TRANSFER = [sys.executable, str(Path(__file__).with_name("transfer.py"))]


def transferred(file: Path, n_bytes: int, n: int, *command: str, **options: Any) -> Any:
    """What host 0, the sender, and host 3 saw."""
    pairs = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    words = [*TRANSFER, str(n_bytes), str(n), *command]
    done = mrc("lab", file, "--hosts", "0,3", *pairs, "--", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    sender, receiver = (json.loads(said_by(host, done)[-1]) for host in (0, 3))
    assert receiver["imms"] == list(range(n))
    assert receiver["right"]
    assert sender["error"] == receiver["error"] == ""
    return sender, receiver


@pytest.mark.parametrize("mode", ["native", "udp"])
def test_bytes_arrive_over_every_plane(switch: str, mode: str, lab_file: LabFile) -> None:
    """Linux forwards what it has never seen the maker of; ours does the same."""
    file = lab_file(switch, f'mode = "{mode}"')
    sender, receiver = transferred(file, 300_000, 4)
    assert sender["planes"] == [0, 1]
    assert min(receiver["rx"]) > 100  # of 296 packets and what belongs to them
    assert all(set(refused) <= {"received before"} for refused in receiver["refused"])


def test_bytes_arrive_where_carriers_name_links(switch: str, lab_file: LabFile) -> None:
    """By End.X of Linux, and by ours: each frame leaves by the link whose uSID comes first."""
    sender, receiver = transferred(lab_file(switch), 300_000, 4, set="fabric.sids=uA")
    assert sender["planes"] == [0, 1]
    assert min(receiver["rx"]) > 100


@pytest.mark.parametrize("place", ["nic 3 plane 1", "nic 0 plane 1", "plane 1 t0 * - t1 *"])
def test_a_plane_dies_in_the_middle(switch: str, place: str, lab_file: LabFile) -> None:
    """The far port, the own port, every link in between: no message is lost, none comes twice."""
    file = lab_file(switch)
    cut = [*MRC, "lab", "fail", place, "--name", file.stem]
    sender, receiver = transferred(file, 100_000, 12, *cut)
    if place == "nic 0 plane 1":
        assert sender["up"] == [True, False]  # seen at once, as a link without a carrier
    if place == "nic 3 plane 1":
        assert receiver["up"] == [True, False]


def test_what_crosses_a_link_decodes_without_a_complaint(
    switch: str, lab_file: LabFile, tmp_path: Path
) -> None:
    capture = tmp_path / "link.pcapng"
    transferred(lab_file(switch), 50_000, 2, pcap=capture, at="nic 0 plane 0")
    assert len(list(pcap.read(capture))) > 10
    done = mrc("decode", capture)
    assert done.returncode == 0, done.stdout
    assert not re.search(r"\bbad\b", done.stdout)
