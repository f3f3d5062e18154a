"""Linux's switches with the BPF program that trims: what they are told, and what they cut."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from openmrc.errors import InputError
from openmrc.fabric.dscp import DEFAULT
from openmrc.live.lab import trimming
from openmrc.live.lab.linux import LinuxFabric
from openmrc.live.lab.namespaces import TOOL_PATH, LabError
from openmrc.live.lab.topology import topology
from openmrc.run.lab.spec import lab_spec, refuse
from openmrc.scenario.scenario import make_scenario
from openmrc.wire import decode, pcap
from openmrc.wire.layout import DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP, ETHERNET
from tests.live.lab.conftest import mrc, needed

CLASSES = tuple(f"-DDSCP_{name}={value}" for value, name in DEFAULT.names.items())
INCAST = """
name = "trimmed"
[fabric]
nics = 4
planes = 2
port_rate = "50Mbps"
t0_down = 2
t0_up = 2
[transport]
base_rtt = "3ms"
[workload]
kind = "incast"
size = "1MB"
n = 3
[lab]
switch = "linux"
bpf = true
"""


def tables(**lab: Any) -> dict[str, Any]:
    return {
        "fabric": {"nics": 4, "planes": 2, "port_rate": "100Mbps", "t0_down": 2, "t0_up": 2},
        "transport": {"base_rtt": "1ms"},
        "workload": {"kind": "permutation", "size": "1MB"},
        "lab": {"switch": "linux", "bpf": True, **lab},
    }


def test_every_port_of_a_switch_gets_classes_and_its_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The BDP of 100 Mb/s and 1 ms, in whole packets of 4262 bytes: 3 and, at the last hop, 5;
    marks from 0.2 to 0.8 of it. The host's port keeps its bucket.
    """
    made: list[tuple[str, ...]] = []

    def note(words: tuple[str, ...]) -> bytes:
        made.append(words)
        return b""

    monkeypatch.setattr(trimming, "compiled", note)
    spec = lab_spec(make_scenario(tables()))
    sizes = {"pmtu": 4096, "base_rtt_ps": 10**9, "senders_per_nic": None}
    fabric = LinuxFabric(topology(spec.fabric, spec.settings), None, spec.queues, **sizes)  # type: ignore[arg-type]
    lines = {b.namespace: list(b.lines) for b in fabric.batches() if b.tool == "tc"}
    marks = ("-DECN_LOW=4262u", "-DECN_HIGH=12786u")
    none = ("-DECN_LOW=4294967294u", "-DECN_HIGH=4294967295u")
    assert sorted(made) == [
        ("-DLIMIT=12786u", *marks, "-DTRIMMED=12", "-DOUTER_LENGTH_ALONE=0", *CLASSES),
        ("-DLIMIT=21310u", *none, "-DTRIMMED=16", "-DOUTER_LENGTH_ALONE=0", *CLASSES),
    ]  # each is compiled once
    assert len(lines["h0"]) == 2
    assert all(" root tbf rate " in line for line in lines["h0"])
    port = [line for line in lines["plane 0 t0 0"] if " dev u0 " in line]
    common = "burst 27114 cburst 27114 quantum 10000 overhead 24"
    first = port.pop(5 + 4)
    assert first.startswith("filter add dev u0 egress bpf direct-action object-file /proc/")
    assert port == [
        "qdisc add dev u0 root handle 1: htb default 12",
        f"class add dev u0 parent 1: classid 1:1 htb rate 100000000bit {common}",
        "class add dev u0 parent 1:1 classid 1:10 htb rate 80000000bit ceil 100000000bit prio 0"
        f" {common}",
        "class add dev u0 parent 1:1 classid 1:11 htb rate 10000000bit ceil 100000000bit prio 1"
        f" {common}",
        "class add dev u0 parent 1:1 classid 1:12 htb rate 10000000bit ceil 100000000bit prio 2"
        f" {common}",
        "qdisc add dev u0 parent 1:10 bfifo limit 65536",
        "qdisc add dev u0 parent 1:11 bfifo limit 25572",
        "qdisc add dev u0 parent 1:12 bfifo limit 25572",
        "qdisc add dev u0 clsact",
    ]


def test_what_a_machine_lacks_is_said_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spec = lab_spec(make_scenario(tables()))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InputError, match=r"lab.bpf: the kernel takes BPF programs from root alone"):
        refuse(spec)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(trimming, "TOOL_PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"there is no `clang`; type: sudo apt install clang"):
        refuse(spec)
    refuse(lab_spec(make_scenario(tables(bpf=False))))


def test_only_linuxs_switches_of_a_fabric_that_trims() -> None:
    with pytest.raises(InputError, match='bpf: true with switch = "openmrc"'):
        make_scenario(tables(switch="openmrc"))
    wrong = tables()
    wrong["fabric"]["trim"] = False
    with pytest.raises(InputError, match=r"lab.bpf: true with fabric.trim = false"):
        lab_spec(make_scenario(wrong))


def test_lengths_that_linux_would_not_forward_are_refused() -> None:
    wrong = tables()
    wrong["fabric"]["trim_lengths"] = "none"
    with pytest.raises(InputError, match=r'trim_lengths = "none": Linux drops such packets'):
        lab_spec(make_scenario(wrong))
    wrong["lab"] = {"switch": "openmrc"}
    assert lab_spec(make_scenario(wrong)).fabric.trim_lengths == "none"


def dscp(frame: bytes) -> int:
    """Of the first header of an IPv6 packet."""
    return (frame[14] & 15) << 2 | frame[15] >> 6


@pytest.mark.skipif(
    shutil.which("clang", path=TOOL_PATH) is None, reason="NOT TESTED: there is no clang here"
)
def test_the_program_compiles_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    words = (
        "-DLIMIT=60000u",
        "-DECN_LOW=10u",
        "-DECN_HIGH=20u",
        "-DTRIMMED=12",
        *CLASSES,
        "-Wall",
        "-Werror",
    )
    made = {trimming.compiled((*words, f"-DOUTER_LENGTH_ALONE={alone}")) for alone in (0, 1)}
    assert len(made) == 2
    assert {program[:4] for program in made} == {b"\x7fELF"}
    with pytest.raises(LabError, match=r"clang does not compile the program that trims: .+"):
        trimming.compiled(())


def test_a_transfer_recovers_from_trims_whose_lengths_no_switch_adjusted(tmp_path: Path) -> None:
    needed("openmrc")
    scenario, capture = tmp_path / "kept.toml", tmp_path / "last.pcapng"
    kept = INCAST.replace("t0_up = 2", 't0_up = 2\ntrim_lengths = "none"')
    scenario.write_text(kept.replace('switch = "linux"\nbpf = true', 'switch = "openmrc"'))
    done = mrc(
        *("run", scenario, "--world", "lab", "--json", "--out", tmp_path / "out"),
        *("--pcap", capture, "--at", "everywhere"),
    )
    assert done.returncode == 0, done.stderr
    (transport,) = json.loads(done.stdout)["transports"].values()
    assert transport["flows"]["completed"] == 3
    cut = [p for record in pcap.read(capture) if (p := decode(record.data)).trimmed]
    assert len(cut) > 10
    assert {p.trim_lengths for p in cut} == {"none"}


@pytest.mark.parametrize("lengths", ["all", "outer"])
def test_three_send_to_one_and_every_frame_comes_whole_or_trimmed(
    tmp_path: Path, lengths: str
) -> None:
    """All bytes are right, and what was cut reads as openmrc's own switches would have cut it."""
    needed("linux")
    if lacks := trimming.missing():
        pytest.skip(f"NOT TESTED: Linux's switches that trim: {lacks}")
    scenario, capture = tmp_path / "trimmed.toml", tmp_path / "last.pcapng"
    scenario.write_text(INCAST.replace("t0_up = 2", f't0_up = 2\ntrim_lengths = "{lengths}"'))
    done = mrc(
        *("run", scenario, "--world", "lab", "--json", "--out", tmp_path / "out"),
        *("--pcap", capture, "--at", "everywhere"),
    )
    if "egress bpf" in done.stderr:
        pytest.skip(f"NOT TESTED: this kernel takes no BPF program from this root: {done.stderr}")
    assert done.returncode == 0, done.stderr
    (transport,) = json.loads(done.stdout)["transports"].values()
    assert transport["flows"]["completed"] == 3
    packets = [decode(record.data) for record in pcap.read(capture)]  # raises for what is not right
    cut = [p for p in packets if dscp(p.frame) in (DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP)]
    assert len(cut) > 10
    assert {(p.length, p.trim_lengths) for p in cut} == {(ETHERNET.size_bytes + 128, lengths)}
