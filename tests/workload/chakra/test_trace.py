"""Chakra traces: what each node becomes, what is refused by name, and a step that runs."""

from __future__ import annotations

import builtins
import json
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import InputError, MissingExtra
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import make_scenario
from openmrc.traffic.traffic import Traffic, unroll
from openmrc.workload import (
    all_gather,
    all_to_all,
    broadcast,
    halving_doubling_all_reduce,
    load_chakra,
    reduce_scatter,
    ring_all_reduce,
)
from openmrc.workload.chakra.collectives import Expansion
from openmrc.workload.chakra.schema import (
    COLLECTIVES,
    COMM_COLL,
    COMM_RECV,
    COMM_SEND,
    COMP,
    MEM_LOAD,
    METADATA,
    schema,
)
from tests.workload.releases import edges

pytest.importorskip("google.protobuf")
ROOT = Path(__file__).resolve().parents[3]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks/traces.py"))
encoded: Callable[..., bytes] = SCRIPT["encoded"]
US = 1_000_000  # ps
Node = dict[str, Any]


def node(number: int, kind: int, *deps: int, micros: int = 0, **attr: Any) -> Node:
    made = {"id": number, "type": kind, "data_deps": deps, "attr": attr}
    return made | {"duration_micros": micros}


def coll(number: int, what: str, size: int, *deps: int, **attr: Any) -> Node:
    kind = COLLECTIVES.index(what)
    return node(number, COMM_COLL, *deps, comm_type=kind, comm_size=size, **attr)


def send(number: int, to: int, size: int, *deps: int, **attr: Any) -> Node:
    return node(number, COMM_SEND, *deps, comm_dst=to, comm_size=size, **attr)


def receive(number: int, src: int, size: int, *deps: int, **attr: Any) -> Node:
    return node(number, COMM_RECV, *deps, comm_src=src, comm_size=size, **attr)


def chakra(tmp_path: Path, *ranks: Sequence[Node], **more: Any) -> Traffic:
    paths = []
    for rank, nodes in enumerate(ranks):
        paths.append(tmp_path / f"t.{rank}.et")
        paths[-1].write_bytes(encoded(nodes))
    return load_chakra(paths, 8, **more)


def refusal(tmp_path: Path, *ranks: Sequence[Node], **more: Any) -> str:
    with pytest.raises(InputError) as error:
        chakra(tmp_path, *ranks, **more)
    return str(error.value).replace(f"{tmp_path}/", "")


def test_nodes_become_computations_and_messages(tmp_path: Path) -> None:
    traffic = chakra(
        tmp_path,
        [
            node(1, METADATA),
            node(2, COMP, 1, micros=20, stream=7),
            send(3, 1, 4096, 2, comm_tag=5),
            node(9, COMP, 3, micros=30, stream=7),
            node(4, MEM_LOAD, micros=5, stream=8),
        ],
        [receive(1, 0, 4096, comm_tag=5), node(2, COMP, 1, micros=40, is_cpu_op=True, tid=7)],
    )
    assert (traffic.kind, traffic.n_nics, traffic.n_msgs) == ("chakra", 8, 1)
    assert (traffic.msg_src.tolist(), traffic.msg_dst.tolist()) == ([0], [1])
    assert traffic.calc_ps.tolist() == [20 * US, 30 * US, 5 * US, 40 * US]
    assert traffic.calc_core.tolist() == [1, 1, 2, 3]
    assert edges(traffic) == ([(0, 4), (1, 0)], [(0, 2)])


def test_control_dependencies_hold_and_nodes_may_come_in_any_order(tmp_path: Path) -> None:
    first = send(7, 1, 10)
    first["ctrl_deps"] = [9]
    traffic = chakra(tmp_path, [first, node(9, COMP, micros=1)], [receive(1, 0, 10)])
    assert edges(traffic) == ([(1, 0)], [])


def test_computations_are_scaled(tmp_path: Path) -> None:
    traffic = chakra(
        tmp_path, [send(1, 1, 5), node(2, COMP, micros=3)], [receive(1, 0, 5)], compute_scale=0.5
    )
    assert traffic.calc_ps.tolist() == [1_500_000]


@pytest.mark.parametrize(
    ("what", "size", "how", "built_in"),
    [
        ("ALL_REDUCE", 1003, Expansion(), ring_all_reduce(4, 1003)),
        (
            "ALL_REDUCE",
            1003,
            Expansion(channels=2, chunks=3),
            ring_all_reduce(4, 1003, 2, chunks=3),
        ),
        (
            "ALL_REDUCE",
            1003,
            Expansion("halving-doubling", channels=2),
            halving_doubling_all_reduce(4, 1003, 2),
        ),
        ("ALL_GATHER", 250, Expansion(), all_gather(4, 1000)),
        ("REDUCE_SCATTER", 1003, Expansion(chunks=2), reduce_scatter(4, 1003, chunks=2)),
        ("REDUCE_SCATTER_BLOCK", 1000, Expansion(), reduce_scatter(4, 1000)),
        ("ALL_TO_ALL", 1003, Expansion(channels=2), all_to_all(4, 1003, 2)),
        ("BROADCAST", 1003, Expansion(chunks=2), broadcast(4, 1003, chunks=2)),
        ("BROADCAST", 1003, Expansion(broadcast="tree"), broadcast(4, 1003, shape="tree")),
        ("ALL_REDUCE", 1, Expansion(channels=2), ring_all_reduce(4, 8, 2)),
        ("BARRIER", 0, Expansion(), ring_all_reduce(4, 4)),
    ],
)
def test_a_collective_alone_is_the_built_in_one(
    tmp_path: Path, what: str, size: int, how: Expansion, built_in: Traffic
) -> None:
    traffic = chakra(tmp_path, *[[coll(1, what, size)]] * 4, expansion=how)
    listed = unroll(built_in)
    for key in ("msg_src", "msg_dst", "msg_bytes", "msg_deps", "msg_imm"):
        assert getattr(traffic, key).tolist() == getattr(listed, key).tolist(), key
    assert edges(traffic) == edges(listed)
    assert traffic.n_calcs == 0
    # messages share a queue pair where those of the built-in one do
    pairs = set(zip(traffic.msg_qp.tolist(), listed.msg_qp.tolist(), strict=True))
    assert len(pairs) == traffic.n_qps == listed.n_qps


def test_a_rank_sends_nothing_before_it_comes_and_goes_on_when_all_is_there(tmp_path: Path) -> None:
    # messages 0, 1 are 0 to 1, then 2, 3 are 1 to 0; computations: rank 0's before, both's after
    reduce = coll(2, "ALL_REDUCE", 10, 1)
    traffic = chakra(
        tmp_path,
        [node(1, COMP, micros=3), reduce, node(3, COMP, 2, micros=4)],
        [coll(2, "ALL_REDUCE", 10), node(3, COMP, 2, micros=5)],
    )
    assert traffic.msg_src.tolist() == [0, 0, 1, 1]
    times = dict(enumerate(traffic.calc_ps.tolist(), start=4))
    assert times == {4: 3 * US, 5: 0, 6: 0, 7: 4 * US, 8: 0, 9: 5 * US}
    by_arrival, when_sent = edges(traffic)
    begin, end, end_of_1 = 5, 6, 8
    assert by_arrival == sorted(
        [
            *[(4, begin), (begin, 0), (begin, 1), (begin, end), (end, 7), (end_of_1, 9)],
            *[(2, 1), (0, 3)],  # step by step round the ring
            *[(0, end_of_1), (1, end_of_1), (2, end), (3, end)],
        ]
    )
    assert when_sent == [(0, end), (1, end), (2, end_of_1), (3, end_of_1)]


def test_groups_are_the_ranks_that_name_them_in_the_order_of_their_nodes(tmp_path: Path) -> None:
    def rank(group: str, *sizes: int) -> list[Node]:
        return [coll(i, "ALL_TO_ALL", s, pg_name=group) for i, s in enumerate(sizes)]

    traffic = chakra(tmp_path, rank("a", 20, 40), rank("b", 60), rank("a", 20, 40), rank("b", 60))
    found = zip(traffic.msg_src, traffic.msg_dst, traffic.msg_bytes, strict=True)
    assert [tuple(map(int, each)) for each in found] == [
        (0, 2, 10), (2, 0, 10), (0, 2, 20), (2, 0, 20), (1, 3, 30), (3, 1, 30),
    ]  # fmt: skip


def test_groups_may_come_from_a_file_in_their_own_order(tmp_path: Path) -> None:
    groups = tmp_path / "groups.json"
    groups.write_text(json.dumps({"a": [2, 0, 1], "one": [1]}))
    ranks = [[coll(1, "BROADCAST", 9, pg_name="a")] for _ in range(3)]
    ranks[1] += [coll(2, "ALL_REDUCE", 9, 1, pg_name="one"), node(3, COMP, 2, micros=1)]
    traffic = chakra(tmp_path, *ranks, groups=groups)
    assert (traffic.msg_src.tolist(), traffic.msg_dst.tolist()) == ([2, 0], [0, 1])
    assert traffic.calc_ps.tolist()[-1] == US  # alone in a group, a rank goes on at once


def test_a_hosts_part_in_a_communication_computes(tmp_path: Path) -> None:
    # a launch on the host, which says nothing of what moves, then the device's own
    launch = node(1, COMM_COLL, micros=7, is_cpu_op=True, tid=3)
    call = node(3, COMM_SEND, 2, is_cpu_op=True)
    alone = [launch, coll(2, "BARRIER", 0, 1), call, node(4, COMP, 3, micros=9)]
    traffic = chakra(tmp_path, alone, alone)
    assert traffic.calc_ps[traffic.calc_ps > 0].tolist() == [7 * US, 9 * US] * 2
    assert traffic.n_msgs == chakra(tmp_path, *[[coll(2, "BARRIER", 0)]] * 2).n_msgs


def test_operations_take_their_time_at_the_stated_rate(tmp_path: Path) -> None:
    nodes = [node(1, COMP, num_ops=3 * 10**9), node(2, COMP, micros=5, num_ops=10**9)]
    traffic = chakra(tmp_path, nodes, compute_rate_ops=10**15, compute_scale=2.0)
    assert traffic.calc_ps.tolist() == [6 * US, 10 * US]


def test_dimensions_say_who_takes_part(tmp_path: Path) -> None:
    def pairs(*attr: Any, **more: Any) -> set[tuple[int, int]]:
        dims = {} if not attr else {"involved_dim": list(attr)}
        ranks = [[coll(1, "ALL_TO_ALL", 9, **dims, **more)]] * 6
        traffic = chakra(tmp_path, *ranks, dimensions=[3, 2])
        return set(zip(traffic.msg_src.tolist(), traffic.msg_dst.tolist(), strict=True))

    def among(*groups: Sequence[int]) -> set[tuple[int, int]]:
        return {(a, b) for group in groups for a in group for b in group if a != b}

    assert pairs(True, False) == among([0, 1, 2], [3, 4, 5])
    assert pairs(False, True) == among([0, 3], [1, 4], [2, 5])
    assert pairs(True, True) == pairs() == pairs(True, True, False) == among(range(6))
    # a process group says more than dimensions, which then are not asked
    assert pairs(True, False, pg_name="all") == among(range(6))


def test_dimensions_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    rank = [coll(1, "ALL_TO_ALL", 9, involved_dim=[True])]
    said = refusal(tmp_path, rank, rank, dimensions=[2, 2])
    assert said == "workload.dimensions: 2 x 2 are 4 ranks; the trace has 2"
    said = refusal(tmp_path, rank, rank, dimensions=[2, 1])
    assert said == (
        "t.0.et: node 1 (COMM_COLL_NODE): attribute involved_dim: yes: 1 of the 2"
        " workload.dimensions; name all"
    )


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([[node(1, 0)]], "t.0.et: node 1 (INVALID_NODE): METADATA_NODE, MEM_LOAD_NODE, "),
        ([[node(1, 12)]], "t.0.et: node 1 (type 12): METADATA_NODE, MEM_LOAD_NODE, "),
        ([[node(1, MEM_LOAD)]], "t.0.et: node 1 (MEM_LOAD_NODE): no duration_micros; memory"),
        ([[node(1, COMP, num_ops=5)]], "t.0.et: node 1 (COMP_NODE): attribute num_ops: and the"),
        ([[node(1, COMP, micros=1 << 60)]], "t.0.et: node 1 (COMP_NODE): computes for 11529215"),
        ([[node(1, COMP), node(1, COMP)]], "t.0.et: node 1 is defined twice; ids are unique"),
        ([[node(1, COMP, 4)]], "t.0.et: node 1 (COMP_NODE): waits for node 4, which is not in"),
        ([[node(1, COMP, micros=1, stream="x")]],
         "t.0.et: node 1 (COMP_NODE): attribute stream: its value is string_val; an integer is"),
        ([[node(1, COMM_SEND, comm_size=1)], []],
         "t.0.et: node 1 (COMM_SEND_NODE): attribute comm_dst: is missing, and it is needed"),
        ([[send(1, 2, 5)], []],
         "t.0.et: node 1 (COMM_SEND_NODE): attribute comm_dst: 2; ranks 0 to 1 exist"),
        ([[send(1, -1, 5)], []],
         "t.0.et: node 1 (COMM_SEND_NODE): attribute comm_dst: -1 is out of range; 0 to 1152"),
        ([[send(1, 0, 5)], []],
         "t.0.et: node 1 (COMM_SEND_NODE): attribute comm_dst: 0 is the rank itself;"),
        ([[send(1, 1, 5, comm_src=1)], []],
         "t.0.et: node 1 (COMM_SEND_NODE): attribute comm_src: this is the trace of rank 0"),
        ([[send(1, 1, 5, comm_priority=2)], []],
         "t.0.et: node 1 (COMM_SEND_NODE): attribute comm_priority: messages have no priorities"),
        ([[send(3, 1, 5)], []],
         "t.0.et: node 3 (COMM_SEND_NODE): send to rank 1 with tag 0: that rank has no receive"),
        ([[], [receive(3, 0, 5, comm_tag=4)]],
         "t.1.et: node 3 (COMM_RECV_NODE): receive from rank 0 with tag 4: that rank has no send"),
        ([[node(1, COMP, 2), node(2, COMP, 1)]],
         "t.0.et: node 1 (COMP_NODE): never begins: it waits for itself, through others"),
        ([[coll(1, "ALL_REDUCE", 9), receive(2, 1, 1)],
          [send(2, 0, 1, 1), coll(1, "ALL_REDUCE", 9, 2)]],
         "t.0.et: node 1 (COMM_COLL_NODE): never begins: it waits for itself, through others"),
        ([[coll(1, "GATHER", 9)]] * 2,
         "t.0.et: node 1 (COMM_COLL_NODE): attribute comm_type: GATHER is not supported"),
        ([[node(1, COMM_COLL, comm_type=10, comm_size=1)]],
         "t.0.et: node 1 (COMM_COLL_NODE): attribute comm_type: 10; 0 to 9 exist"),
        ([[coll(1, "ALL_REDUCE", 9, involved_dim=[True, False])]],
         "t.0.et: node 1 (COMM_COLL_NODE): attribute involved_dim: yes, no: along some dimensions"),
        ([[node(1, COMM_COLL, comm_size=9)]],
         "t.0.et: node 1 (COMM_COLL_NODE): attribute comm_type: is missing, and it is needed"),
        ([[coll(1, "ALL_REDUCE", 9)], [coll(4, "ALL_REDUCE", 8)]],
         "t.1.et: node 4 (COMM_COLL_NODE): ALL_REDUCE of 8 B, but rank 0 does ALL_REDUCE of 9 B"),
        ([[coll(1, "ALL_REDUCE", 9)], []],
         "t.0.et: node 1 (COMM_COLL_NODE): rank 1 has 0 collectives in group '', and this one"),
        ([[]] * 9, "t.0.et: 9 ranks on 8 NICs; take a larger fabric"),
        ([[], []], "t.0.et: workload: no messages, no computations"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_file_and_node(
    tmp_path: Path, ranks: Sequence[Sequence[Node]], message: str
) -> None:
    assert refusal(tmp_path, *ranks).startswith(message)


def test_halving_and_doubling_wants_a_power_of_two(tmp_path: Path) -> None:
    said = refusal(tmp_path, *[[coll(1, "ALL_REDUCE", 9)]] * 3,
                   expansion=Expansion("halving-doubling"))  # fmt: skip
    assert said.startswith("t.0.et: node 1 (COMM_COLL_NODE): workload.ranks: 3 is no power of two")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "groups.json: not JSON; accepted: "),
        ("[" * 100_000, "groups.json: not JSON; accepted: "),
        ("[]", "groups.json: no table; accepted: "),
        ('{"a": [0, 2]}', "groups.json: group 'a': ranks 0 to 1 are accepted"),
        ('{"a": [true]}', "groups.json: group 'a': ranks 0 to 1 are accepted"),
        ('{"a": [0, 0]}', "groups.json: group 'a': one or more different ranks are accepted"),
        ('{"b": [0, 1]}', "t.0.et: node 1 (COMM_COLL_NODE): attribute pg_name: no group 'a'"),
        ('{"a": [1]}', "t.0.et: node 1 (COMM_COLL_NODE): attribute pg_name: rank 0 is not in"),
    ],
)
def test_files_of_groups_are_checked(tmp_path: Path, text: str, message: str) -> None:
    groups = tmp_path / "groups.json"
    groups.write_text(text)
    ranks = [[coll(1, "ALL_REDUCE", 9, pg_name="a")]] * 2
    assert refusal(tmp_path, *ranks, groups=groups).startswith(message)


WHOLE = encoded([node(1, COMP, micros=5), node(2, COMP, 1, micros=5)])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "nothing in it; name a Chakra trace"),
        (WHOLE[:-1], "byte 15: a message of 9 B, but the file ends before; it is not complete"),
        (b"\xff" * 11, "byte 0: no length of a message; the file is damaged, or no trace"),
        (b"\xff\xff\xff\xff\x7f", "byte 0: a message of 34359738367 B; at most 67108864 B"),
        (b"\x03\x0a\x05a", "does not begin with the metadata of a Chakra trace"),
        (encoded([], version="0.0.3"), "schema version '0.0.3'; 0.0.4 and 1.x are accepted, conv"),
        (encoded([], version="2.0"), "schema version '2.0'; 0.0.4 and 1.x are accepted, convert"),
        (encoded([]) + b"\x01\x0a", "message 1 is no node; the file is damaged, or no trace"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "t.0.et"
    path.write_bytes(data)
    with pytest.raises(InputError) as error:
        load_chakra([path], 8)
    assert str(error.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize("version", ["", "0.0.4", "1.0.0"])
def test_versions_with_the_same_fields_are_read(tmp_path: Path, version: str) -> None:
    paths = [tmp_path / "t.0.et", tmp_path / "t.1.et"]
    for path, nodes in zip(paths, ([send(1, 1, 5)], [receive(1, 0, 5)]), strict=True):
        path.write_bytes(encoded(nodes, version=version))
    assert load_chakra(paths, 2).n_msgs == 1


def test_messages_are_found_across_chunks(tmp_path: Path) -> None:
    nodes = [send(1, 1, 5) | {"name": "n" * 3_000_000}]
    nodes += [node(i, COMP, micros=1) | {"name": "x" * 777} for i in range(2, 4000)]
    traffic = chakra(tmp_path, nodes, [receive(1, 0, 5)])
    assert (traffic.n_msgs, traffic.n_calcs) == (1, 3998)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "workload.traces: no file; a file for each rank is needed"),
        (["a.et"], "a.et: a trace's name ends in its rank, such as trace.0.et"),
        (["a.0.et", "b.0.et"], "b.0.et: rank 0 has a.0.et already"),
        (["a.0.et", "a.2.et"], "a.2.et: rank 2, but rank 1 has no file; name all ranks from 0"),
        (["a.0.et"], "a.0.et: cannot be read (No such file or directory); name a Chakra trace"),
    ],
)
def test_ranks_are_those_of_the_files_names(names: list[str], message: str) -> None:
    with pytest.raises(InputError) as error:
        load_chakra(names, 8)
    assert str(error.value).startswith(message)


def test_ranks_are_counted_not_spelt(tmp_path: Path) -> None:
    n = 11
    for rank in range(n):
        (tmp_path / f"rank{rank}.et").write_bytes(
            encoded([send(1, (rank + 1) % n, rank + 1), receive(2, (rank - 1) % n, 99)])
        )
    for traces in (".", "rank*.et"):
        scenario = make_scenario(
            {"workload": {"kind": "chakra", "traces": traces}, "fabric": {"nics": 16}},
            base=tmp_path,
        )
        _, traffic, _ = scenario.build()
        assert traffic.msg_bytes.tolist() == list(range(1, n + 1))
        assert len(scenario.files()) == n


def test_a_scenario_without_its_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"workload.traces: 'x': there is no such file in "):
        make_scenario({"workload": {"kind": "chakra", "traces": "x"}}, base=tmp_path)


def test_without_protobuf_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.0.et").write_bytes(WHOLE)
    real = builtins.__import__

    def importing(name: str, *rest: Any) -> Any:
        if name.startswith("google"):
            raise ImportError(name)
        return real(name, *rest)

    schema.cache_clear()
    monkeypatch.setattr(builtins, "__import__", importing)
    with pytest.raises(MissingExtra, match=r"pip install 'openmrc\[traces\]'"):
        load_chakra([tmp_path / "t.0.et"], 8)


VALUES = st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 12) | st.text()
NAMES = st.sampled_from(
    ["comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "pg_name", "stream", "tid",
     "is_cpu_op", "num_ops", "comm_priority"]
)  # fmt: skip
NODES = st.lists(
    st.builds(
        lambda number, kind, deps, micros, attr: {
            "id": number, "type": kind, "data_deps": deps, "duration_micros": micros, "attr": attr,
        },
        st.integers(0, 6) | st.integers(0, (1 << 64) - 1),
        st.integers(1, 7) | st.integers(-(1 << 31), (1 << 31) - 1),
        st.lists(st.integers(0, 6), max_size=3),
        st.integers(0, 9) | st.integers(0, (1 << 64) - 1),
        st.dictionaries(NAMES, VALUES, max_size=5),
    ),
    max_size=6,
)  # fmt: skip


@given(
    st.lists(st.binary(max_size=80) | NODES.map(encoded), min_size=1, max_size=2),
    st.integers(0, 60),
    st.binary(max_size=2),
)
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, files: list[bytes], at: int, damage: bytes
) -> None:
    folder = tmp_path_factory.mktemp("chakra")
    paths = [folder / f"t.{rank}.et" for rank in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data[:at] + damage + data[at + len(damage) :])
    try:
        load_chakra(paths, 4)
    except InputError as error:
        assert str(error).startswith(str(folder))  # noqa: PT017


def test_the_ring_of_a_trace_runs_as_the_built_in_ring(tmp_path: Path) -> None:
    size = 100_003
    for rank in range(8):
        (tmp_path / f"t.{rank}.et").write_bytes(encoded([coll(1, "ALL_REDUCE", size)]))
    fabric = {"nics": 8, "planes": 4, "port_rate": "100Gbps"}
    traced, built_in = (
        simulate(make_scenario({"fabric": fabric, "workload": work}, base=tmp_path)).transports[0]
        for work in (
            {"kind": "chakra", "traces": "*.et"},
            {"kind": "ring-all-reduce", "size": f"{size}B"},
        )
    )
    assert traced.finish_ps == built_in.finish_ps
    assert traced.flows["done_ps"].tolist() == built_in.flows["done_ps"].tolist()


def test_the_example_is_what_the_script_writes_and_runs(tmp_path: Path) -> None:
    SCRIPT["write_examples"](tmp_path)
    for rank in range(8):
        name = f"step/step.{rank}.et"
        assert (ROOT / "examples/traces" / name).read_bytes() == (tmp_path / name).read_bytes()
    run = simulate(ROOT / "examples/chakra_trace.toml").transports[0]
    assert run.completed.all()
    # stage 0 computes 60 us, stage 1 60 us and then 120 us, stage 0 120 us: then it reduces
    assert run.finish_ps is not None
    assert 360 * US < run.finish_ps < 500 * US
    assert np.count_nonzero(run.flows["bytes"] == 500_000) == 8
