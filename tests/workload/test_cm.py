"""htsim's .cm text: flows, triggers, and one line of complaint for every wrong word."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmrc.errors import InputError
from openmrc.traffic.releases import waves
from openmrc.traffic.traffic import Traffic
from openmrc.workload import load_cm

PLAIN = """\
Nodes 128
Connections 3
# a comment
103->32 id 1 start 0 size 2000000
34->109 id 2 start 5000 size 100

59->62 start 7 size 3
"""


def load(tmp_path: Path, text: str, n_nics: int = 128) -> Traffic:
    path = tmp_path / "x.cm"
    path.write_text(text)
    return load_cm(path, n_nics)


def triggered(tmp_path: Path, kind: str, fired_by: int, started: int) -> Traffic:
    """`fired_by` flows that fire one trigger when they are sent, `started` flows that it starts."""
    lines = ["Nodes 8", f"Connections {fired_by + started}", "Triggers 1"]
    lines += [f"{i}->7 start 0 size 9 send_done_trigger 4" for i in range(fired_by)]
    lines += [f"{i}->6 trigger 4 size 9" for i in range(started)]
    return load(tmp_path, "\n".join([*lines, f"trigger id 4 {kind}"]), 8)


def test_connections_become_qps_with_one_message_each(tmp_path: Path) -> None:
    traffic = load(tmp_path, PLAIN)
    assert (traffic.kind, traffic.n_nics, traffic.n_qps) == ("htsim", 128, 3)
    assert traffic.msg_src.tolist() == [103, 34, 59]
    assert traffic.msg_dst.tolist() == [32, 109, 62]
    assert traffic.msg_bytes.tolist() == [2_000_000, 100, 3]
    assert traffic.msg_start_ps.tolist() == [0, 5_000, 7]
    assert traffic.msg_deps.tolist() == [0, 0, 0]


def test_a_matrix_may_use_fewer_nodes_than_there_are(tmp_path: Path) -> None:
    assert load(tmp_path, PLAIN, 256).n_nics == 256


def test_messages_of_one_connection_share_a_queue_pair_in_the_order_of_the_file(
    tmp_path: Path,
) -> None:
    traffic = load(
        tmp_path,
        """\
Nodes 4
Connections 5
Triggers 1
0->1 id 1 msg start 0 size 9
2->1 id 2 start 0 size 8
0->1 id 1 start 0 msg 2 size 7 send_done_trigger 1
0->1 msg id 3 size 6 trigger 1
0->1 id 1 trigger 1 size 5 msg
trigger id 1 oneshot
""",
        4,
    )
    assert (traffic.qp_src.tolist(), traffic.qp_dst.tolist()) == ([0, 2, 0], [1, 1, 1])
    assert traffic.msg_qp.tolist() == [0, 1, 0, 2, 0]
    assert traffic.msg_bytes.tolist() == [9, 8, 7, 6, 5]
    assert traffic.msg_deps.tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("other", ["0->2 id 1 msg", "0->1 id 1"])
def test_messages_of_one_connection_have_its_ends_and_say_msg(tmp_path: Path, other: str) -> None:
    text = f"Nodes 4\nConnections 2\n0->1 id 1 msg start 0 size 9\n{other} start 0 size 9\n"
    with pytest.raises(InputError, match=r"x.cm:4: id 1 is taken, see .*:3; messages of one"):
        load(tmp_path, text, 4)


def test_a_oneshot_starts_all_it_has_at_once(tmp_path: Path) -> None:
    traffic = triggered(tmp_path, "oneshot", 1, 3)
    assert traffic.sent_next.tolist() == [1, 2, 3]
    assert traffic.msg_deps.tolist() == [0, 1, 1, 1]


def test_a_barrier_waits_for_all_who_fire_it(tmp_path: Path) -> None:
    traffic = triggered(tmp_path, "barrier count 3", 3, 2)
    assert traffic.msg_deps.tolist() == [0, 0, 0, 3, 3]
    assert traffic.sent_first.tolist() == [0, 2, 4, 6, 6, 6]


def test_the_kth_firing_of_a_multishot_starts_its_kth_flow(tmp_path: Path) -> None:
    traffic = triggered(tmp_path, "multishot", 3, 2)
    assert traffic.msg_deps.tolist() == [0, 0, 0, 1, 2]
    assert traffic.sent_next.tolist() == [3, 4] * 3


def test_a_chain_by_arrival_and_by_acknowledgement(tmp_path: Path) -> None:
    traffic = load(
        tmp_path,
        """\
Nodes 4
Connections 3
Triggers 2
trigger id 1 oneshot
0->1 id 1 start 10 size 9 recv_done_trigger 1
1->2 id 2 trigger 1 size 9 send_done_trigger 2
2->3 id 3 trigger 2 size 9
trigger oneshot id 2
""",
        4,
    )
    assert (traffic.recv_next.tolist(), traffic.sent_next.tolist()) == ([1], [2])
    tables = ((traffic.recv_first, traffic.recv_next), (traffic.sent_first, traffic.sent_next))
    assert [wave.tolist() for wave in waves(tables, traffic.msg_deps)] == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("103->32", "4000->32", "x.cm:4: node 4000 of 128; 0 to 127 exist"),
        ("103->32", "103->128", "x.cm:4: node 128 of 128; 0 to 127 exist"),
        ("103->32", "103->103", "x.cm:4: node 103 sends to itself; name two nodes"),
        ("103->32", "-1->32", "x.cm:4: '-1->32'; a line begins with SRC->DST or trigger"),
        ("103->32", "103 32", "x.cm:4: '103'; a line begins with SRC->DST or trigger"),
        (
            "size 100",
            "size -100",
            "x.cm:5: size -100 is out of range; 1 to 1152921504606846976 is accepted",
        ),
        ("size 100", "size " + "9" * 5000, "x.cm:5: size 99999"),
        (
            "size 100",
            "size 0",
            "x.cm:5: size 0 is out of range; 1 to 1152921504606846976 is accepted",
        ),
        ("size 100", "size big", "x.cm:5: size 'big' is not a whole number; write digits only"),
        ("size 100", "size", "x.cm:5: size; each key appears once, followed by a number"),
        ("size 100", "", "x.cm:5: no size; add 'size BYTES'"),
        ("size 100", "size 100 size 5", "x.cm:5: size; each key appears once"),
        ("size 100", "size 100 prio 3", "x.cm:5: prio: flows have no priorities here; remove it"),
        (
            "size 100",
            "size 100 msg 0",
            "x.cm:5: msg 0 is out of range; 1 to 1152921504606846976 is accepted",
        ),
        (
            "start 5000",
            "msg start 5000",
            "x.cm:5: msg: it needs an id, the connection's, and start",
        ),
        ("id 2 start 5000", "msg start 0", "x.cm:5: msg: it needs an id, the connection's, and"),
        ("size 100", "size 100 colour 3", "x.cm:5: unknown word 'colour'; id, start, size, "),
        ("start 5000", "", "x.cm:5: exactly one of 'start PICOSECONDS' and 'trigger T' is needed"),
        ("start 5000", "start 1 trigger 1", "x.cm:5: exactly one of 'start PICOSECONDS' and"),
        ("start 5000", "start 1.5", "x.cm:5: start '1.5' is not a whole number"),
        ("start 5000", "trigger 3", "x.cm:5: no trigger 3; add 'trigger id 3 ...'"),
        ("id 2", "id 1", "x.cm:5: id 1 is taken, see "),
        ("id 2", "id 0", "x.cm:5: id 0 is out of range; 1 to 1152921504606846976 is accepted"),
        ("Connections 3", "Connections 4", "x.cm: Connections 4, but the file has 3; correct it"),
        ("Connections 3\n", "", "x.cm: Connections is missing; state it in the first lines"),
        ("Nodes 128\n", "", "x.cm: Nodes is missing; state it in the first lines"),
        ("Nodes 128", "Nodes 129", "x.cm: Nodes 129, but the fabric has 128 NICs"),
        ("Nodes 128", "Nodes 128 129", "x.cm:1: 'Nodes 128 129'; Nodes and one number are"),
        ("Nodes 128", "Nodes 128\nNodes 128", "x.cm:2: Nodes is defined twice; remove one"),
        ("# a comment", "Failures 1", "x.cm: Failures 1, but the file has 0; correct it"),
        ("# a comment", "Triggers 1", "x.cm: Triggers 1, but the file has 0; correct it"),
        (
            "# a comment",
            "failure switch_type AGG switch_id 1 link_id 1",
            "x.cm:3: failures are not supported here; write a [[fault]] of a scenario",
        ),
        ("# a comment", "trigger id 1", "x.cm:3: 'trigger id 1'; 'trigger id T oneshot', "),
        ("# a comment", "trigger oneshot", "x.cm:3: 'trigger oneshot'; 'trigger id T oneshot', "),
        (
            "# a comment",
            "trigger id 0 oneshot",
            "x.cm:3: id 0 is out of range; 1 to 1152921504606846976",
        ),
        ("# a comment", "trigger id 1 barrier", "x.cm:3: a count belongs to a barrier, and only"),
        ("# a comment", "trigger id 1 oneshot count 2", "x.cm:3: a count belongs to a barrier"),
        (
            "# a comment",
            "trigger id 1 oneshot\ntrigger id 1 oneshot",
            "x.cm:4: trigger 1 is defined twice; see ",
        ),
    ],
)
def test_each_wrong_word_is_refused_in_one_line(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in PLAIN
    with pytest.raises(InputError) as refused:
        load(tmp_path, PLAIN.replace(old, new, 1))
    assert str(refused.value).startswith(str(tmp_path / message))


@pytest.mark.parametrize(
    ("kind", "fired_by", "started", "message"),
    [
        ("oneshot", 2, 1, "this oneshot needs 1 firings and gets 2"),
        ("oneshot", 0, 1, "this oneshot needs 1 firings and gets 0"),
        ("barrier count 3", 2, 1, "this barrier needs 3 firings and gets 2"),
        ("barrier count 1", 2, 1, "this barrier needs 1 firings and gets 2"),
        ("multishot", 1, 2, "this multishot needs 2 firings and gets 1"),
        ("oneshot", 1, 0, "it is fired and starts nothing; remove it"),
    ],
)
def test_a_trigger_must_be_fired_as_its_kind_needs(
    tmp_path: Path, kind: str, fired_by: int, started: int, message: str
) -> None:
    line = 4 + fired_by + started
    with pytest.raises(InputError) as refused:
        triggered(tmp_path, kind, fired_by, started)
    assert str(refused.value).startswith(f"{tmp_path / 'x.cm'}:{line}: {message}")


def test_flows_that_wait_for_each_other_are_refused(tmp_path: Path) -> None:
    text = """\
Nodes 4
Connections 2
Triggers 2
0->1 trigger 1 size 9 send_done_trigger 2
1->2 trigger 2 size 9 send_done_trigger 1
trigger id 1 oneshot
trigger id 2 oneshot
"""
    with pytest.raises(InputError, match=r"x\.cm: workload message 0 \(nic 0 to nic 1\): never"):
        load(tmp_path, text, 4)


def test_files_that_hold_no_matrix(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing in it; name an htsim \.cm file"):
        load(tmp_path, "\n# nothing\n")
    with pytest.raises(InputError, match=r"\(No such file or directory\); name an htsim \.cm file"):
        load_cm(tmp_path / "none.cm", 8)
    with pytest.raises(InputError, match="workload: no messages, no computations"):
        load(tmp_path, "Nodes 4\nConnections 0\n")
