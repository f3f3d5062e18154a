"""`mrc perf` on two hosts of a lab, by the same words on both, and on links of 1500 bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.live.lab.conftest import MRC, LabFile, mrc, said_by


def measured(file: Path, *words: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """What server and client printed as JSON, and all that was said to people."""
    command = [*MRC, "perf", *words, "--ranks", "--json"]
    done = mrc("lab", file, "--hosts", "0,3", "--", *command)
    assert done.returncode == 0, done.stdout + done.stderr
    server, client = (json.loads("\n".join(said_by(host, done))) for host in (0, 3))
    return server, client, done.stderr


def test_bandwidth_between_two_hosts(switch: str, lab_file: LabFile) -> None:
    """Two planes of 100 Mb/s: no more than they carry, and a line each second at both ends."""
    server, client, said = measured(lab_file(switch), "write_bw", "--duration", "1.5")
    assert (server["role"], client["role"]) == ("server", "client")
    assert (server["nic"], client["nic"]) == (0, 3)
    assert server["rows"] == client["rows"]
    assert 0.005 < client["rows"][0]["bw_average_gbps"] < 0.2
    for host in (0, 3):
        assert f"h{host}|    1 s  " in said
    ports = server["device"]["ports"]
    assert min(port["rx_bytes"] for port in ports) > 100_000
    assert client["pmtu_note"] == ""


def test_latency_between_two_hosts(switch: str, lab_file: LabFile) -> None:
    _, client, _ = measured(lab_file(switch), "write_lat", "--iters", "20")
    [row] = client["rows"]
    assert row["iterations"] == 20
    assert 4 < row["t_min_us"] <= row["t_typical_us"]  # three switches, each at least 1 us a way


def test_links_of_1500_bytes_work_at_1024_and_say_so(switch: str, lab_file: LabFile) -> None:
    """Row 20: the same program that asks for 4096."""
    file = lab_file(switch, "mtu = 1500")
    server, client, said = measured(file, "write_bw", "--iters", "20", "--size", "100000")
    for end in (server, client):
        assert end["pmtu_bytes"] == 1024
        assert end["pmtu_note"].startswith("PMTU 1024 B in place of 4096: e0 has an MTU of 1500")
    assert client["rows"][0]["iterations"] == 20
    assert sum(qp["tx_packets"] - qp["rtx"] for qp in client["queue_pairs"].values()) == 20 * 98
    assert said.count("PMTU 1024 B in place of 4096") == 2
