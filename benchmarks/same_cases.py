"""What `same.py` runs in both checkouts.

A case is what Python is called with. In it "{files}" is a directory with the files that are written
here, and "{out}" an empty one, everything in which is compared afterwards. Relative names are those
of the checkout.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from checkouts import MRC

SOAK_SEED, SOAK_DRAWN, SOAK_ROUNDS = 1000, 24, 100


@dataclass(frozen=True)
class Case:
    """A name, and the arguments of Python."""

    name: str
    command: tuple[str, ...]


# Examples: what is changed so that each takes a second or two.
EXAMPLES = {
    "chakra_trace": "",
    "denylist": "workload.size=40MB stop.time=3ms",
    "flapping_transceiver": "fabric.nics=32 workload.size=20MB stop.time=3ms",
    "four_of_eight_ports": "workload.size=100MB",
    "goal_trace": "",
    "hall_under_construction": "fabric.nics=32 workload.size=32MB",
    "incast": "",
    "lossy_link": "fabric.nics=32 workload.size=2MB",
    "own_policies": "workload.size=1MB",
    "ring_16384": "fabric.nics=512 workload.size=256KiB",
    "training": "workload.steps=2 stop.time=8ms",
    "two_jobs": "workload.noise.size=8MB workload.training.size=2MB",
    "variants": "workload.size=2MB",
    "paper/B10_t0_down": "stop.time=6ms",
    "paper/B12_lossy_path": "stop.time=2ms",
    "paper/B14_send_recv": "workload.size=4MB",
    "paper/B15_all_reduce_mrc": "workload.size=4MB fabric.nics=32 fault[0].rate=0.001",
    "paper/B15_all_reduce_roce": "workload.size=4MB fabric.nics=32 fault[0].rate=0.001",
    "paper/B16_all_to_all_mrc": "workload.size=8MB fabric.nics=32 fault[0].rate=0.001",
    "paper/B16_all_to_all_roce": "workload.size=8MB fabric.nics=32 fault[0].rate=0.001",
    "paper/B18_racks_100g": "stop.time=52ms",
    "paper/B18_racks_400g": "stop.time=51ms",
    "paper/B1_job_start": "fabric.nics=128 stop.time=200us",
    "paper/B20_incast": "stop.time=22ms",
    "paper/B2_flaps": "fabric.nics=32 workload.steps=2 stop.time=6ms",
    "paper/B2_one_link": "workload.steps=1 workload.layers=2 workload.microbatches=2",
    "paper/B3_transceiver": "fault[0].at=500us fault[0].until=1500us stop.time=1800us",
    "paper/B5_bandwidth": "workload.write_bw.size=32MiB workload.write_bw.chunks=256",
    "paper/B5_latency": "",
    "paper/B6_staircase": "stop.time=7ms",
    "paper/B7_four_of_eight": "stop.time=6ms",
    "paper/S1_incast_127": "",
    "worlds/flapping_link": "",
    "worlds/incast": "",
    "worlds/lossy_link": "",
    "worlds/permutation": "",
    "worlds/plane_cut": "",
    "worlds/silent_switch": "",
}

# Every transport, one after the other, on one fabric.
TRANSPORTS = """
transport = [
    { name = "mrc" },
    { name = "oblivious", paths = "oblivious" },
    { name = "reps", paths = "reps" },
    { name = "reps, 100 us", paths = "reps", freezing = "100us" },
    { name = "single", paths = "single", convergence = "100us" },
    { name = "no srv6", srv6 = false },
    { name = "no trim", trim = false },
    { name = "no ecn skip", ecn_skip = false },
    { name = "always skip", always_skip_after = 3 },
    { name = "fixed window", cc = "none", mpr = 256 },
    { name = "small", pmtu = 1024, sack_bytes = 1, evs_active = 16, evs_backup = 0 },
    { name = "impatient", rto_exponent = 5, linear_cnt = 3, exp_cnt = 3 },
    { name = "own window", cc = "own/nothing.py:step" },
    { name = "own paths", paths = "own/rotation.py:choose" },
    { name = "roce", kind = "roce", convergence = "100us" },
    { name = "roce, 8 QPs", kind = "roce", qps = 8, convergence = "instant" },
    { name = "roce, fast", kind = "roce", profile = "aggressive", convergence = "50us-500us" },
    { name = "roce, faster", kind = "roce", profile = "most-aggressive", ack_every = 1 },
    { name = "roce, no cc", kind = "roce", cc = "none", buffer = "4MB" },
    { name = "roce, drops", kind = "roce", pfc = false, rto = "1ms" },
]
"""
FABRIC = 'fabric = { nics = 32, planes = 4, port_rate = "100Gbps", t0_down = 8, t0_up = 4 }\n'
FAT_TREE = (
    'fabric = { kind = "fat-tree", tiers = 3, nics = 32, port_rate = "100Gbps", t0_down = 4 }\n'
)
PERMUTATION = 'workload = { kind = "permutation", size = "512KiB", channels = 2 }\n'
INCAST = 'workload = { kind = "incast", n = 12, size = "256KiB", victim = true }\n'
ALL_TO_ALL = 'workload = { kind = "all-to-all", size = "1MB", order = "random", at_once = 4 }\n'
TRAINING = """
workload = { kind = "training", tp = 2, pp = 2, ep = 2, layers = 2, microbatches = 2, steps = 2, \
forward = "5us", jitter = 0.2, tp_size = "64KiB", pp_size = "64KiB", ep_size = "32KiB", \
dp_size = "128KiB", expert_size = "64KiB", bucket = "256KiB", tp_collective = "reduce-scatter" }
"""
ROCE = """
transport = [{ name = "roce", kind = "roce", qps = 2, buffer = "4MB" }]
fabric = { kind = "fat-tree", nics = 16, port_rate = "100Gbps", t0_down = 4 }
"""
STOP = 'stop = { time = "4ms" }\n'

# One of every kind; those that break nothing for good have an end of their own.
FAULTS = {
    "link-down": 'where = "plane 0 t0 0 - t1 *", at = "20us", for = "200us"',
    "link-flaps": 'kind = "link-down", where = "plane 1 t0 1 - t1 2", at = "10us",'
    ' period = "40us", duty = 0.4, until = "900us"',
    "link-loss": 'where = "nic 3 plane 1 > t0", at = "0us", rate = 0.05',
    "link-bursts": 'kind = "link-loss", where = "plane 2 t0 2 - t1 *", at = "0us", rate = 0.1,'
    " burst = 8.0",
    "link-corrupt": 'where = "plane * t0 0 > t1 *", at = "0us", rate = 0.01',
    "link-slow": 'where = "plane 3 t0 1 - t1 1", at = "5us", factor = 0.1',
    "mtu": 'where = "plane 1 t0 2 - t1 *", at = "5us", mtu = "1500B", for = "500us"',
    "link-construction": 'where = "plane * t0 * - t1 *", at = "0us", mtbf = "300us",'
    ' mttr = "60us", until = "2ms"',
    "transceiver-down": 'where = "plane 1 t0 0 transceiver 0", at = "15us", for = "150us"',
    "port-down": 'where = "nic 5 plane 2", at = "10us"',
    "switch-down": 'where = "plane 0 t1 1", at = "20us", for = "300us"',
    "switch-silent": 'where = "plane 2 t1 0", at = "20us"',
    "deny": 'where = "plane 1 t1 3", at = "10us", nics = "0-15"',
}
FAULTY_TRANSPORTS = """
transport = [
    { name = "mrc" },
    { name = "oblivious", paths = "oblivious" },
    { name = "single", paths = "single", convergence = "100us" },
    { name = "no srv6", srv6 = false },
    { name = "roce", kind = "roce", qps = 4, convergence = "100us", rto = "500us" },
]
"""

TOPO = """\
Nodes 32
Tiers 3
Podsize 8
Tier 0
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 100
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Tier 2
Downlink_speed_Gbps 100
Radix_Down 4
Downlink_Latency_ns 1000
"""
CM = "Nodes 32\nConnections 34\nTriggers 1\n{flows}{late}trigger id 4 barrier count 32\n".format(
    flows="".join(
        f"{i}->{(13 * i + 5) % 32} id {i + 1} start {1000 * i} size 400000 send_done_trigger 4\n"
        for i in range(32)
    ),
    late="".join(f"{i}->31 id {i + 33} trigger 4 size 100000\n" for i in range(2)),
)

# In one process: a run that writes what crossed some links, and what `mrc decode` says of it.
CAPTURED = """
import contextlib, io, sys
from openmrc.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    main(["run", *sys.argv[2:], "--pcap", sys.argv[1]])
sys.exit(main(["decode", sys.argv[1], "--json"]))
"""
VECTORS = """
from conformance.generate import GROUPS, text
for group, vectors in GROUPS.items():
    print(group)
    print(text(vectors))
"""


def toml(value: Any) -> str:
    """A value of JSON as one of TOML: tables within a line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def soak(rounds: int) -> tuple[str, ...]:
    """What draws and runs so many scenarios."""
    return ("-c", MRC, "soak", "--seed", f"{SOAK_SEED}", "--rounds", f"{rounds}", "--workers", "1")


def drawn(printed: str) -> dict[str, str]:
    """The scenario files of what a soak printed: a line a round, with all that was drawn."""
    files = {}
    for line in printed.splitlines():
        word, _, rest = line.partition(" ")
        if word in ("ok", "FAILED"):
            seed, _, options = rest.partition(" ")
            tables = json.loads(options)
            files[f"drawn_{seed}.toml"] = "".join(f"{k} = {toml(v)}\n" for k, v in tables.items())
    return files


def files() -> dict[str, str]:
    """Every file that is written here, by name. Beside them is each checkout's benchmarks/own."""
    faults = {name: toml_fault(name) for name in FAULTS}
    several = f"fault = [{', '.join(faults.values())}]\n"
    return {
        "peer.topo": TOPO,
        "peer.cm": CM,
        "healthy.toml": TRANSPORTS + FABRIC + PERMUTATION + STOP,
        "roce.toml": ROCE + INCAST,
        "busy.toml": TRANSPORTS + FABRIC + INCAST + STOP,
        "fat_tree.toml": TRANSPORTS + FAT_TREE + ALL_TO_ALL + STOP,
        "broken.toml": TRANSPORTS + FABRIC + PERMUTATION + STOP + several,
        "steps.toml": TRANSPORTS + FABRIC + TRAINING + STOP + f"fault = [{faults['link-flaps']}]\n",
        **{
            f"fault_{name}.toml": f"{FAULTY_TRANSPORTS}{FABRIC}{ALL_TO_ALL}{STOP}fault = [{each}]\n"
            for name, each in faults.items()
        },
    }


def toml_fault(name: str) -> str:
    """A fault as a table within a line."""
    keys = FAULTS[name]
    return f"{{ {keys} }}" if "kind =" in keys else f'{{ kind = "{name}", {keys} }}'


def run(name: str, *arguments: str) -> Case:
    """`mrc run ... --json`."""
    return Case(name, ("-c", MRC, "run", *arguments, "--json"))


def changed(text: str) -> Iterator[str]:
    """--set for each of these words."""
    for word in text.split():
        yield from ("--set", word)


def cases(written: Sequence[str]) -> Iterator[Case]:
    """All of them; `written` names the scenario files in "{files}"."""
    for name, changes in EXAMPLES.items():
        yield run(name, f"examples/{name}.toml", *changed(changes))
    for file in sorted(name for name in written if name.endswith(".toml")):
        yield run(file.removesuffix(".toml"), f"{{files}}/{file}")

    peer = ("--topo", "{files}/peer.topo", "--cm", "{files}/peer.cm")
    yield run("peer", *peer)
    yield run("peer, oblivious", *peer, *changed("transport.paths=oblivious"), "--seed", "2")
    yield run("peer, single", *peer, *changed("transport.paths=single"), "--seed", "3")
    yield run("usid", "{files}/fault_deny.toml", *changed("fabric.forwarding=usid"))
    yield run("refused", "examples/incast.toml", *changed("fabric.planes=17"))
    yield run("refused place", "examples/lossy_link.toml", *changed("fabric.nics=16"))

    # Whole directories of results: tables, the page, the scenario with its defaults. The page names
    # the place of a policy, so there is none in these.
    variants = changed(EXAMPLES["variants"])
    yield run("results, variants", "examples/variants.toml", *variants, "--out", "{out}")
    yield run("results, faults", "{files}/fault_link-flaps.toml", "--out", "{out}")
    one_link = changed(EXAMPLES["paper/B2_one_link"])
    yield run("results, steps", "examples/paper/B2_one_link.toml", *one_link, "--out", "{out}")
    two_jobs = changed(EXAMPLES["two_jobs"])
    yield run("results, jobs", "examples/two_jobs.toml", *two_jobs, "--out", "{out}")

    at = ("--at", "nic 0", "--at", "plane 0 t0 0 - t1 0")
    small = tuple(changed("workload.size=64KiB"))
    for name, more in {
        "mrc": ("examples/incast.toml", *small, *at),
        "usid": ("examples/incast.toml", *small, *changed("fabric.forwarding=usid"), *at),
        "peer": (*peer, "--at", "nic 0"),
        "roce": ("{files}/roce.toml", "--at", "nic 0", "--at", "plane 0 t0 0"),
    }.items():
        yield Case(f"capture, {name}", ("-c", CAPTURED, "{out}/links.pcapng", *more))

    yield Case("vectors", ("-c", VECTORS))
    yield Case("plan", ("-c", MRC, "plan", "--gpus", "8192", "--collisions", "--json"))
    yield Case("soak", soak(SOAK_ROUNDS))
