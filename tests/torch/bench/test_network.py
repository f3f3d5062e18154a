"""Hosts of an ordinary network here: every plane reaches every host, until it is cut."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.lab.conftest import needed

ROOT = Path(__file__).parents[3]
# What each host has heard when host 0 has spoken to it: on both planes, on one, on both again.
STORY = """
import socket, sys
from openmrc.live.lab.isolation import run_isolated
from openmrc.torch.bench.network import Network, address

HOSTS, VERSION = int(sys.argv[1]), int(sys.argv[2])
FAMILY = socket.AF_INET if VERSION == 4 else socket.AF_INET6
NEVER_S, COMES_S = 0.05, 10.0

def opened(network, host, at):
    with network.namespaces.inside(network.hosts[host]):
        one = socket.socket(FAMILY, socket.SOCK_DGRAM)
        one.bind((at, 4000))
        return one

def heard(ends, cut):
    told = []
    for plane, (speaks, *hear) in enumerate(ends):
        for host, one in enumerate(hear, 1):
            one.settimeout(NEVER_S if plane == cut else COMES_S)
            speaks.sendto(b"", (address(host, plane, VERSION), 4000))
            try:
                one.recv(1)
                told.append((host, plane))
            except TimeoutError:
                pass
    return told

def work():
    network = Network(HOSTS, 2, version=VERSION)
    ends = [
        [opened(network, host, address(host, plane, VERSION)) for host in range(HOSTS)]
        for plane in range(2)
    ]
    every = [(host, plane) for plane in range(2) for host in range(1, HOSTS)]
    assert heard(ends, None) == every
    network.cut(1)
    assert heard(ends, 1) == [(host, 0) for host in range(1, HOSTS)]
    network.heal(1)
    assert heard(ends, None) == every
    told = network.rank(1, ["sh", "-c", "echo $RANK $OPENMRC_INTERFACES; ip -br link show e1"])
    return told.wait()

sys.exit(run_isolated(work))
"""


@pytest.mark.parametrize(("hosts", "version"), [(2, 4), (3, 6)])
def test_a_plane_that_is_cut_loses_all_until_it_is_whole(hosts: int, version: int) -> None:
    needed("linux")
    done = subprocess.run(
        [sys.executable, "-c", STORY, str(hosts), str(version)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 e0,e1\ne1@")
