"""Planes of two hosts that are named in different orders, cut or gone are named when a job is set
up, or when it ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

from openmrc.live.endpoint.planes import Plane
from openmrc.torch.crossing import Came, asked, judged
from tests.live.lab.conftest import needed

ROOT = Path(__file__).parents[2]

RANKS = [4, 7]  # as errors name them


def both(*planes: int) -> list[Came]:
    """Planes that reach their own, both ways."""
    return [Came(a, k, 1 - a, k) for k in planes for a in (0, 1)]


def test_what_came_tells_crossed_planes_from_dead_ones() -> None:
    silent = {(0, 1): {0, 1}}
    why, _ = judged(silent, [Came(0, 0, 1, 1), *both(2)], 3, RANKS)
    assert why.startswith("planes are crossed: plane 0 of rank 4 reaches plane 1 of rank 7, not")
    assert "OPENMRC_INTERFACES" in why
    told = judged(silent, both(2), 3, RANKS)
    assert told == ("", ["no answer on planes 0, 1 between rank 4 and rank 7: down, or cut"])
    closed = judged(silent, both(0, 1, 2), 3, RANKS)[1]
    assert closed[0].endswith("a firewall drops MRC's UDP port")
    assert judged(silent, both(), 2, RANKS)[0].startswith("no plane between rank 4 and rank 7 ans")
    # a network that joins its planes lets each reach all: nothing is crossed
    every = [Came(a, j, 1 - a, k) for a in (0, 1) for j in (0, 1) for k in (0, 1)]
    assert judged({(0, 1): {0}}, every, 2, RANKS)[0] == ""
    assert judged({(0, 1): set()}, [], 2, RANKS) == ("", [])


def test_words_come_from_each_plane_to_the_planes_that_it_reaches() -> None:
    """On loopback every address reaches every other; words of another job are none."""
    from ipaddress import ip_address

    import torch.distributed as dist

    store = dist.HashStore()
    planes = [
        [Plane("lo", ip_address(f"127.0.{rank}.{k}"), 65536, None) for k in (1, 2)]
        for rank in (1, 2)
    ]
    found: list[list[Came]] = [[], []]

    def ask(rank: int) -> None:
        found[rank] = asked(store, rank, [1 - rank], planes[rank], bytes(16))

    threads = [threading.Thread(target=ask, args=(rank,)) for rank in (0, 1)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    every = sorted(Came(a, j, 1 - a, k) for a in (0, 1) for j in (0, 1) for k in (0, 1))
    assert found == [every, every]


RANKS_OF = """
import json, os, subprocess, sys
import torch, torch.distributed as dist
from openmrc.live.lab.isolation import run_isolated
from openmrc.live.lab.namespaces import Batch
from openmrc.torch.bench.network import PORT, Network, address

def started(network, rank, names):
    '''A rank, forked: the pipe of what it says.'''
    hears, says = os.pipe()
    with network.namespaces.inside(network.hosts[rank]):
        if os.fork():
            os.close(says)
            return open(hears)
        told = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": str(PORT)}
        os.environ.update(told, MASTER_ADDR=address(0, 0), OPENMRC_INTERFACES=names)
        try:
            dist.init_process_group("mrc")
            dist.all_reduce(torch.ones(5000))
            os.write(says, b"up\\n")
            while True:
                dist.all_reduce(torch.ones(5000))
        except Exception as error:
            os.write(says, f"{error}\\n".encode())
        os._exit(0)
"""

STORY = """
def work():
    network = Network(2, 3)
    crossed = [started(network, 0, "e0,e1,e2"), started(network, 1, "e1,e0,e2")]
    told = [one.readline() for one in crossed]
    both = [started(network, rank, "e1,e2") for rank in range(2)]
    assert [one.readline() for one in both] == ["up\\n"] * 2
    network.namespaces.run([Batch("h1", "ip", ["link del e1", "link del e2"])])
    print(json.dumps(told + [one.readline() for one in both]))
    return 0

sys.exit(run_isolated(work))
"""

NARROW = """
def work():
    network = Network(2, 2)
    for host in network.hosts:
        sets = [f"link set e{k} mtu 1500" for k in range(2)]
        network.namespaces.run([Batch(host, "ip", sets)])
    with network.namespaces.inside(network.hosts[1]):
        rules = "add table inet t; add chain inet t i {type filter hook input priority 0;};"
        rules += "add rule inet t i udp length 1400-1490 drop"
        subprocess.run(["nft", rules], check=True)
    ranks = [started(network, rank, "e0,e1") for rank in range(2)]
    print(json.dumps([one.readline() for one in ranks]))
    return 0

sys.exit(run_isolated(work))
"""


def told(work: str) -> tuple[list[str], str]:
    """What ranks in network namespaces say, and what is printed beside that."""
    needed("linux")
    done = subprocess.run(
        ["env", "OPENMRC_TIMEOUT=2", sys.executable, "-c", RANKS_OF + work],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_planes_that_are_crossed_and_interfaces_that_are_gone_are_named() -> None:
    *crossed, first, second = told(STORY)[0]
    for said in crossed:
        assert "planes are crossed: plane 0 of rank 0 reaches plane 1 of rank 1, not its" in said
        assert "planes of rank" in said
    for said in first, second:  # without one end of its cable the other interface is gone, too
        assert "all interfaces of this host are gone" in said
        assert "plane 0: interface e1 of this host is gone" in said


def test_where_packets_that_fill_the_mtu_do_not_pass_a_job_sends_smaller_ones() -> None:
    """Row 20: the path of one rank decides for all."""
    ranks, beside = told(NARROW)
    assert ranks == ["up\n"] * 2
    assert "PMTU 1024 B" in beside
