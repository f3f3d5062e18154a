"""Labs as a user runs them: real namespaces, real frames, and nothing left behind.

Times are those of a machine that does something else as well, so bounds are generous.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from openmrc.wire import pcap
from tests.live.lab.conftest import MRC, ROOT, LabFile, lacks, mrc, needed, said_by
from tests.live.lab.fabric import FABRIC

EXCHANGE = [sys.executable, str(Path(__file__).with_name("exchange.py"))]
STATUS = f"{shlex.join(MRC)} lab status --json --name"
# Bar: 8 hosts x 4 planes in less than a second on an idle machine; this one is shared.
UP_S_MAX = 3.0


def exchanged(file: Path, *evs: int, count: int = 3, more: str = "true", **options: Any) -> Any:
    """What host 3 received of host 0's frames on these EVs, and the whole run."""
    words = shlex.join([*EXCHANGE, str(count), *map(str, evs)])
    command = ["sh", "-c", f"{words} && if [ $RANK = 0 ]; then {more}; fi"]
    pairs = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    done = mrc("lab", file, "--hosts", "0,3", *pairs, "--", *command)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in said_by(3, done)], done


def test_a_frame_takes_the_switches_that_its_ev_names(linux: str, lab_file: LabFile) -> None:
    file = lab_file(linux)
    ev = FABRIC.ev(1, 0)
    frames, done = exchanged(file, ev, count=5, more=f"{STATUS} {file.stem}")
    assert [frame["psn"] for frame in frames] == [0, 1, 2, 3, 4]
    # Host 3 is the second of its T0: its uSID alone is left, shifted to the front, three hops on.
    expected = {"plane": 1, "carrier": "2001:db8:1001::", "hop_limit": 61, "code": 0, "to_me": True}
    assert all(expected.items() <= frame.items() for frame in frames)
    counted = json.loads("\n".join(said_by(0, done)))["counters"]
    named = {FABRIC.switch_name(int(FABRIC.port_switch[p])) for p in FABRIC.route(0, 3, ev)[1:]}
    assert named == {"plane 1 t0 0", "plane 1 t1 0", "plane 1 t0 1"}
    assert {name: row["packets"] for name, row in counted.items()} == {
        name: 5 if name in named else 0 for name in counted
    }
    assert len(counted) == 8


def test_our_switches_forward_and_count_the_same(lab_file: LabFile) -> None:
    file = lab_file(needed("openmrc"))
    frames, done = exchanged(file, FABRIC.ev(1, 0), count=5, more=f"{STATUS} {file.stem}")
    expected = {"plane": 1, "carrier": "2001:db8:1001::", "hop_limit": 61, "code": 0, "to_me": True}
    assert len(frames) == 5
    assert all(expected.items() <= frame.items() for frame in frames)
    counted = json.loads("\n".join(said_by(0, done)))["counters"]
    named = {"plane 1 t0 0", "plane 1 t1 0", "plane 1 t0 1"}
    assert {name for name, row in counted.items() if row["packets"]} == named


@pytest.mark.parametrize(
    ("fault", "lost"),
    [
        ('kind = "link-down"\nwhere = "nic 0 plane 0"', {(0, 0), (0, 1)}),
        ('kind = "link-down"\nwhere = "nic 3 plane 0 < t0"', {(0, 0), (0, 1)}),
        ('kind = "link-loss"\nrate = 1\nwhere = "plane 0 t0 0 > t1 1"', {(0, 1)}),
        ('kind = "switch-silent"\nwhere = "plane 1 t1 0"', {(1, 0)}),
        ('kind = "switch-down"\nwhere = "plane 0 t1 1"', {(0, 1)}),
    ],
)
def test_a_scheduled_fault_takes_what_it_names(
    switch: str, fault: str, lost: set[tuple[int, int]], lab_file: LabFile
) -> None:
    paths = [(plane, up0) for plane in range(2) for up0 in range(2)]
    file = lab_file(switch, f'[[fault]]\nat = "0us"\n{fault}\n')
    frames, _ = exchanged(file, *(FABRIC.ev(*path) for path in paths), count=2)
    # The PSN is the round; which path a frame took shows in how many of a plane arrive.
    for plane in range(2):
        alive = sum(path not in lost for path in paths if path[0] == plane)
        assert sum(frame["plane"] == plane for frame in frames) == 2 * alive


def test_a_place_fails_and_heals_while_the_lab_runs(switch: str, lab_file: LabFile) -> None:
    file = lab_file(switch)
    cli = shlex.join(MRC)
    words = shlex.join([*EXCHANGE, "2", str(FABRIC.ev(0, 0)), str(FABRIC.ev(1, 0))])
    # The same command from inside a host as from a terminal.
    fail = f"{cli} lab fail 'nic 0 plane 0' --name {file.stem}"
    heal = f"{cli} lab heal everywhere --name {file.stem}"
    command = f"[ $RANK = 1 ] || {fail}; {words}; [ $RANK = 1 ] || {heal}; {words}"
    done = mrc("lab", file, "--hosts", "0,3", "--", "sh", "-c", command)
    assert done.returncode == 0, done.stderr
    planes = [json.loads(line)["plane"] for line in said_by(3, done)]
    assert planes[:2] == [1, 1]  # while it was down
    assert sorted(planes[2:]) == [0, 0, 1, 1]  # and healed
    assert said_by(0, done) == [
        "nic 0 plane 0 > t0: down",
        "nic 0 plane 0 < t0: down",
        "nothing is broken",
    ]


def test_a_host_sees_its_link_go_down_and_come_back(switch: str, lab_file: LabFile) -> None:
    file = lab_file(switch)
    cli = shlex.join(MRC)
    look = "ip -o link show e1 | grep -o 'state [A-Z]*'"
    command = (
        f"{look}; {cli} lab fail 'nic 2 plane 1' --name {file.stem} >&2; {look};"
        f" {cli} lab heal 'nic 2 plane 1' --name {file.stem} >&2; {look}"
    )
    done = mrc("lab", file, "--hosts", "2", "--", "sh", "-c", command)
    assert said_by(2, done) == ["state UP", "state DOWN", "state UP"]


def test_a_capture_of_a_link_decodes_without_a_complaint(
    switch: str, lab_file: LabFile, tmp_path: Path
) -> None:
    out = tmp_path / "out.pcapng"
    evs = FABRIC.ev(0, 0), FABRIC.ev(0, 1)
    exchanged(lab_file(switch), *evs, count=2, pcap=out, at="plane 0 t0 0 - t1 1")
    with pcap.read(out) as packets:
        assert [packet.interface for packet in packets] == ["plane 0 t0 0 > t1 1"] * 2
    done = mrc("decode", out)
    assert done.stdout.splitlines()[-1] == "2 packets"


def test_hosts_are_told_who_they_are(switch: str, lab_file: LabFile) -> None:
    file = lab_file(switch, 'mtu = 4200\n[[transport]]\nbase_rtt = "2ms"\n')
    names = "OPENMRC_RANK OPENMRC_WORLD_SIZE OPENMRC_HOSTS RANK WORLD_SIZE MASTER_ADDR MASTER_PORT"
    command = f"for n in {names}; do printenv $n; done; cat $OPENMRC_HOST; echo; ip link show e1"
    done = mrc("lab", file, "--hosts", "1,3", "--", "sh", "-c", command)
    *told, host, link, _ = said_by(3, done)
    hosts = "198.18.0.2,198.18.0.4"
    assert told == ["1", "2", hosts, "1", "2", "198.18.0.2", "29500"]
    content = json.loads(host)
    secret = content.pop("secret")
    assert len(bytes.fromhex(secret)) == 16
    assert content["fabric"]["port_rate"] == "100Mbps"
    assert (content["nic"], content["mode"], content["base_rtt_us"]) == (3, "native", 2000)
    assert [port["interface"] for port in content["ports"]] == ["e0", "e1"]
    assert "mtu 4200" in link


def test_the_first_status_that_is_not_zero_is_the_lab_s(switch: str, lab_file: LabFile) -> None:
    command = "case $RANK in 1) sleep 0.5; exit 7;; 2) exit 5;; esac"
    done = mrc("lab", lab_file(switch), "--", "sh", "-c", command)
    assert done.returncode == 5


def test_a_shell_on_a_host_is_the_user_s(linux: str, lab_file: LabFile) -> None:
    done = subprocess.run(
        [*MRC, "lab", str(lab_file(linux)), "--shell", "h2"],
        input="echo $OPENMRC_RANK of $OPENMRC_WORLD_SIZE; ip -o -4 address show m0; exit 4\n",
        env={**os.environ, "SHELL": "/bin/sh"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 4
    assert done.stdout.startswith("2 of 4\n")
    assert "198.18.0.3/32" in done.stdout


def test_eight_hosts_on_four_planes_are_up_soon(switch: str) -> None:
    example = ROOT / f"examples/lab/{switch}.toml"
    mrc("lab", example, "--name", f"warm-{os.getpid()}", "--", "true")
    done = mrc("lab", example, "--name", f"timed-{os.getpid()}", "--", "true")
    up_s = float(done.stderr.partition("up in ")[2].split()[0])
    assert up_s < UP_S_MAX


NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody; others are nobody")
def test_nobody_may_have_a_lab(linux: str, lab_file: LabFile) -> None:
    if subprocess.run([*NOBODY, *MRC, "--version"], capture_output=True, check=False).returncode:
        pytest.skip(f"NOT TESTED: nobody may not run {sys.executable}")
    with tempfile.TemporaryDirectory() as directory:  # pytest's own is closed to others
        Path(directory).chmod(0o777)
        file = Path(directory, f"nobody-{os.getpid()}.toml")
        file.write_text(lab_file(linux).read_text())
        under = ["env", f"OPENMRC_CACHE={directory}/cache", *NOBODY]
        done = mrc("lab", file, "--", "sh", "-c", "id -u; ip -o link | wc -l", under=under)
    assert done.returncode == 0, done.stderr
    # Root of its own namespaces, with lo, e0, e1 and the management's m0.
    assert [said_by(host, done) for host in range(4)] == [["0", "4"]] * 4


def namespaces_of(pids: list[int]) -> set[str]:
    found = set()
    for pid in pids:
        try:
            found.add(os.readlink(f"/proc/{pid}/ns/net"))
        except OSError:
            continue
    return found


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def marked(mark: str) -> list[int]:
    """The processes that carry this word in their command line."""
    found = []
    for pid in all_pids():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in words:
            found.append(pid)
    return found


def interfaces() -> str:
    return subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_lab_that_is_killed_leaves_no_trace(
    number: signal.Signals, switch: str, lab_file: LabFile
) -> None:
    file = lab_file(switch)
    before, own = interfaces(), os.readlink("/proc/self/ns/net")
    mark = f"86{os.getpid()}"  # seconds to sleep, as long as nobody would
    # One that would outlive its parent, and its session's end, in the lab's namespaces.
    command = f"setsid sleep {mark} & trap '' TERM; echo up; sleep {mark}"
    lab = subprocess.Popen(
        [*MRC, "lab", str(file), "--", "sh", "-c", command], stdout=subprocess.PIPE, text=True
    )
    assert lab.stdout is not None
    with lab.stdout:
        assert sorted(lab.stdout.readline() for _ in range(4))[0] == "h0| up\n"
    inside = marked(mark)
    assert len(inside) >= 8  # two sleeps on each of four hosts, at least
    of_hosts = namespaces_of(marked(mark)) - {own}
    assert len(of_hosts) >= 4
    running = {pid for pid in all_pids() if namespaces_of([pid]) & of_hosts}
    lab.send_signal(number)
    status = lab.wait(timeout=120)
    assert status == {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}[number]
    until = time.monotonic() + 60
    # Of those that ran there: the kernel gives a number to another lab's namespace at once.
    while marked(mark) or of_hosts & namespaces_of(sorted(running & set(all_pids()))):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert interfaces() == before
    assert mrc("lab", "status", "--name", file.stem).returncode == 2


FAULT = '[[fault]]\nat = "0us"\nwhere = "nic 0 plane 0"\n'


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (f'{FAULT}kind = "deny"', "fault[0].kind: 'deny' applies to endpoints"),
        (f'{FAULT}kind = "link-corrupt"\nrate = 0.1', "Linux cannot do link-corrupt"),
        (
            f'{FAULT}kind = "link-loss"\nrate = 0.1\nburst = 4',
            "Linux cannot do link-loss with burst",
        ),
        (f'{FAULT}kind = "link-down"'.replace("nic 0", "nic 9"), "there is no nic 9"),
        ('sitch = "linux"', "lab.sitch: unknown key; did you mean 'switch'"),
        ("mtu = 100", "lab.mtu: 100; accepted: 1280 to 9216"),
    ],
)
def test_what_a_lab_cannot_do_is_refused_in_a_line(
    linux: str, more: str, words: str, lab_file: LabFile
) -> None:
    done = mrc("lab", lab_file(linux, more), "--", "true")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


def test_an_overlay_has_no_hosts(lab_file: LabFile) -> None:
    needed("openmrc")
    done = mrc("lab", lab_file("overlay"), "--", "true")
    assert done.returncode == 2
    assert '"overlay" is one process without hosts' in done.stderr


def test_two_labs_of_one_name_are_one_too_many(linux: str, lab_file: LabFile) -> None:
    file = lab_file(linux)
    inner = f"{shlex.join(MRC)} lab {file} -- true"
    # Inside a host the name is taken too: the lab listens there.
    done = mrc("lab", file, "--hosts", "0", "--", "sh", "-c", inner)
    assert done.returncode == 2
    assert "a lab of this name is running already" in done.stderr


def test_mode_udp_reaches_a_host_by_an_ordinary_socket(switch: str, lab_file: LabFile) -> None:
    file = lab_file(switch, 'mode = "udp"\n')
    words = shlex.join([sys.executable, str(Path(__file__).with_name("datagram.py"))])
    done = mrc("lab", file, "--hosts", "0,3", "--", "sh", "-c", f"{words} {FABRIC.ev(1, 1)}")
    assert done.returncode == 0, done.stderr
    (line,) = said_by(3, done)
    # The EV behind the host's uSID, the port it came from, and the sender's own on that plane.
    assert json.loads(line) == ["2001:db8:1001:7:abcd::", "e1", "fd6d:7263:1::1"]


def test_the_machine_says_why_not_and_what_to_type(lab_file: LabFile) -> None:
    needed("linux")
    forbid = 'echo 0 > /proc/sys/user/max_net_namespaces && exec "$@"'
    under = ["unshare", "-Ur", "sh", "-c", forbid, "sh"]
    done = mrc("doctor", under=under)
    assert done.returncode == 1
    assert "type: sudo sysctl -w user.max_net_namespaces=10000" in done.stdout
    done = mrc("lab", lab_file("linux"), "--", "true", under=under)
    assert done.returncode == 2
    assert done.stderr.startswith("mrc: namespaces are refused")
    assert done.stderr.count("\n") == 1


def test_the_doctor_s_checks_are_quick() -> None:
    done = mrc("doctor", "--json")
    found = json.loads(done.stdout)
    assert {check["need"] for check in found["checks"]} >= {"namespaces", "packet sockets"}
    assert all(check["took_s"] < 1 for check in found["checks"])
    assert list(found["uses"]) == list(lacks())
    assert done.returncode == int(any(not use["can"] for use in found["uses"].values()))
