"""htsim's `.cm` files: a connection matrix as text.

    Nodes 128
    Connections 3
    Triggers 1
    0->5 id 1 start 0 size 2000000 send_done_trigger 1
    7->5 id 2 start 0 size 2000000 recv_done_trigger 1
    5->9 id 3 trigger 1 size 2000000
    trigger id 1 barrier count 2

Each connection is a QP, with one message of `size` bytes that starts at `start` picoseconds, or
when its trigger fires. A connection fires a trigger when its sender holds the last acknowledgement
(`send_done_trigger`) or when its last byte has arrived (`recv_done_trigger`). A `oneshot` starts
all its connections when it is fired; a `barrier` when it is fired for the `count`-th time; the
k-th firing of a `multishot` starts its k-th connection, in the order of the file.

Lines with `msg` and the same `id` and ends are messages on one QP, in the order of the file; a
number after `msg` only names the message. Their `start` is 0, or a trigger's: htsim reads other
values as microseconds if it runs with reuse of connections, and as picoseconds everywhere else.

"#" begins a comment line. What htsim accepts and then ignores or dies of is refused by name:
`prio`, failures, triggers that are fired a wrong number of times.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from openmrc.errors import InputError
from openmrc.fabric.words import Line, read_lines, whole
from openmrc.traffic.traffic import Traffic, make_traffic

_HEADER = {"Nodes", "Connections", "Triggers", "Failures"}
_FLOW = re.compile(r"([0-9]+)->([0-9]+)", re.ASCII)
_FLOW_KEYS = {  # least values
    "id": 1,
    "start": 0,
    "size": 1,
    "trigger": 1,
    "send_done_trigger": 1,
    "recv_done_trigger": 1,
    "msg": 1,
}
_TRIGGER_KINDS = ("oneshot", "multishot", "barrier")


@dataclass
class _Flow:
    place: str
    src: int
    dst: int
    keys: dict[str, int]

    @property
    def connection(self) -> tuple[int, ...]:
        """What messages of one connection have in common."""
        return (self.src, self.dst, self.keys["id"]) if "msg" in self.keys else ()


@dataclass
class _Trigger:
    place: str
    kind: str
    count: int  # of a barrier; 0 for the others
    on_sent: list[int] = field(default_factory=list)  # flows that fire it
    on_recv: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # flows it starts

    @property
    def firings(self) -> int:
        return len(self.on_sent) + len(self.on_recv)


def load_cm(path: str | Path, n_nics: int) -> Traffic:
    """Return the workload of an htsim `.cm` file for a fabric of `n_nics` NICs.

    Message i is the i-th line of the file that names two nodes. `InputError` names file and line.
    """
    header: dict[str, int] = {}
    flows: list[_Flow] = []
    triggers: dict[int, _Trigger] = {}
    for line in read_lines(path, "an htsim .cm file"):
        first = line.words[0]
        if first in _HEADER:
            _read_header(line, header)
        elif first == "trigger":
            _read_trigger(line, triggers)
        elif first == "failure":
            raise InputError(
                f"{line.place}: failures are not supported here; write a [[fault]] of a scenario"
            )
        else:
            flows.append(_read_flow(line))
    _check_header(str(path), header, len(flows), len(triggers), n_nics)
    _check_flows(flows, header["Nodes"])
    _connect(flows, triggers)
    for trigger in triggers.values():
        _check_trigger(trigger)
    try:
        return _traffic(n_nics, flows, triggers)
    except InputError as error:
        raise error.at(str(path)) from None


def _read_header(line: Line, header: dict[str, int]) -> None:
    place, words = line
    if len(words) != 2:
        raise InputError(f"{place}: {' '.join(words)!r}; {words[0]} and one number are accepted")
    if words[0] in header:
        raise InputError(f"{place}: {words[0]} is defined twice; remove one")
    header[words[0]] = whole(place, words[0], words[1])


def _read_flow(line: Line) -> _Flow:
    place, words = line
    ends = _FLOW.fullmatch(words[0])
    if ends is None:
        raise InputError(f"{place}: {words[0]!r}; a line begins with SRC->DST or trigger")
    keys: dict[str, int] = {}
    if "msg" in words:  # its number may be missing
        at = words.index("msg") + 1
        if not words[at : at + 1] or not words[at].isdecimal():
            words = [*words[:at], "1", *words[at:]]
    for i in range(1, len(words), 2):
        key = words[i]
        if key == "prio":
            raise InputError(f"{place}: prio: flows have no priorities here; remove it")
        if key not in _FLOW_KEYS:
            raise InputError(f"{place}: unknown word {key!r}; {', '.join(_FLOW_KEYS)} are accepted")
        if key in keys or i + 1 == len(words):
            raise InputError(f"{place}: {key}; each key appears once, followed by a number")
        keys[key] = whole(place, key, words[i + 1], _FLOW_KEYS[key])
    if "size" not in keys:
        raise InputError(f"{place}: no size; add 'size BYTES'")
    if ("start" in keys) == ("trigger" in keys):
        raise InputError(f"{place}: exactly one of 'start PICOSECONDS' and 'trigger T' is needed")
    if "msg" in keys and ("id" not in keys or keys.get("start")):
        raise InputError(
            f"{place}: msg: it needs an id, the connection's, and start 0 or a trigger: htsim"
            " reads other starts as microseconds here"
        )
    return _Flow(place, whole(place, "node", ends[1]), whole(place, "node", ends[2]), keys)


def _read_trigger(line: Line, triggers: dict[int, _Trigger]) -> None:
    place, words = line
    kinds = [word for word in words[1:] if word in _TRIGGER_KINDS]
    rest = [word for word in words[1:] if word not in _TRIGGER_KINDS]
    pairs = dict(zip(rest[::2], rest[1::2], strict=False))
    if (
        len(kinds) != 1
        or len(rest) != 2 * len(pairs)
        or not {"id"} <= set(pairs) <= {"id", "count"}
    ):
        raise InputError(
            f"{place}: {' '.join(words)!r}; 'trigger id T oneshot', 'trigger id T multishot' or"
            " 'trigger id T barrier count N' is accepted"
        )
    number = whole(place, "id", pairs["id"], 1)
    if number in triggers:
        raise InputError(
            f"{place}: trigger {number} is defined twice; see {triggers[number].place}"
        )
    count = whole(place, "count", pairs["count"], 1) if "count" in pairs else 0
    if (count > 0) != (kinds == ["barrier"]):
        raise InputError(f"{place}: a count belongs to a barrier, and only there")
    triggers[number] = _Trigger(place, kinds[0], count)


def _check_header(
    path: str, header: dict[str, int], n_flows: int, n_triggers: int, n_nics: int
) -> None:
    for key in ("Nodes", "Connections"):
        if key not in header:
            raise InputError(f"{path}: {key} is missing; state it in the first lines")
    found = {"Connections": n_flows, "Triggers": n_triggers, "Failures": 0}
    for key, count in found.items():
        if header.get(key, 0) != count:
            raise InputError(
                f"{path}: {key} {header.get(key, 0)}, but the file has {count}; correct it"
            )
    if header["Nodes"] > n_nics:
        raise InputError(f"{path}: Nodes {header['Nodes']}, but the fabric has {n_nics} NICs")


def _check_flows(flows: list[_Flow], n_nodes: int) -> None:
    seen: dict[int, _Flow] = {}
    for flow in flows:
        for node in (flow.src, flow.dst):
            if node >= n_nodes:
                raise InputError(
                    f"{flow.place}: node {node} of {n_nodes}; 0 to {n_nodes - 1} exist"
                )
        if flow.src == flow.dst:
            raise InputError(f"{flow.place}: node {flow.src} sends to itself; name two nodes")
        number = flow.keys.get("id")
        if number is None:
            continue
        first = seen.setdefault(number, flow)
        if first is not flow and not ("msg" in flow.keys and first.connection == flow.connection):
            raise InputError(
                f"{flow.place}: id {number} is taken, see {first.place}; messages of one connection"
                " have the same ends, and 'msg'"
            )


def _connect(flows: list[_Flow], triggers: dict[int, _Trigger]) -> None:
    """Register each flow with the triggers it names."""
    for i, flow in enumerate(flows):
        for key in ("trigger", "send_done_trigger", "recv_done_trigger"):
            number = flow.keys.get(key)
            if number is None:
                continue
            if number not in triggers:
                raise InputError(
                    f"{flow.place}: no trigger {number}; add 'trigger id {number} ...'"
                )
            trigger = triggers[number]
            lists = {"trigger": trigger.starts, "send_done_trigger": trigger.on_sent}
            lists.get(key, trigger.on_recv).append(i)


def _check_trigger(trigger: _Trigger) -> None:
    """Refuse a trigger that is fired a wrong number of times for its kind."""
    needed = {"oneshot": 1, "barrier": trigger.count, "multishot": len(trigger.starts)}
    least = needed[trigger.kind]
    fits = trigger.firings == least or (trigger.kind == "multishot" and trigger.firings > least)
    if not trigger.starts and trigger.firings:
        raise InputError(f"{trigger.place}: it is fired and starts nothing; remove it")
    if trigger.starts and not fits:
        raise InputError(
            f"{trigger.place}: this {trigger.kind} needs {least} firings and gets"
            f" {trigger.firings}; correct the connections that name it"
        )


def _traffic(n_nics: int, flows: list[_Flow], triggers: dict[int, _Trigger]) -> Traffic:
    deps = [0] * len(flows)
    sent: tuple[list[int], list[int]] = ([], [])
    recv: tuple[list[int], list[int]] = ([], [])
    for trigger in triggers.values():
        for k, started in enumerate(trigger.starts, start=1):
            deps[started] = {"oneshot": 1, "barrier": trigger.firings, "multishot": k}[trigger.kind]
            for edges, giving in ((sent, trigger.on_sent), (recv, trigger.on_recv)):
                edges[0].extend(giving)
                edges[1].extend([started] * len(giving))
    qps: dict[tuple[int, ...], _Flow] = {}
    own = [flow.connection or (i,) for i, flow in enumerate(flows)]
    for each, flow in zip(own, flows, strict=True):
        qps.setdefault(each, flow)
    number = {each: qp for qp, each in enumerate(qps)}
    return make_traffic(
        "htsim",
        n_nics,
        qp_src=[flow.src for flow in qps.values()],
        qp_dst=[flow.dst for flow in qps.values()],
        msg_qp=[number[each] for each in own],
        msg_bytes=[flow.keys["size"] for flow in flows],
        msg_start_ps=[flow.keys.get("start", 0) for flow in flows],
        recv=recv,
        sent=sent,
        deps=deps,
    )
