"""One rule of the engine broken each: a line of its source, what stands there instead, and the rule
of the kit that names what is broken.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple


class Mutant(NamedTuple):
    """`old` stands once in a module of `engine/`; with `new` in its place `rule` must fail."""

    name: str
    module: str
    old: str
    new: str
    rule: str


MUTANTS = [
    # responder: SACK
    Mutant(
        "SACK base off by one",
        "responder",
        "p.sack_offset = base - q.cack",
        "p.sack_offset = base - q.cack + 1",
        "sack-shows-what-came-beyond-a-hole",
    ),
    Mutant(
        "cack one ahead",
        "responder",
        "p.cack_psn = es.psn_of(q.peer_psn, q.cack)",
        "p.cack_psn = es.psn_of(q.peer_psn, q.cack + 1)",
        "sack-when-asked",
    ),
    Mutant(
        "PSN of a SACK left 0",
        "responder",
        "    p.psn = p.cack_psn  # row 30\n",
        "",
        "psn-of-a-sack",
    ),
    Mutant(
        "EV not reflected",
        "responder",
        "    p.entropy = trigger.ev\n    p.timestamp = trigger.timestamp\n    p.cack_psn",
        "    p.timestamp = trigger.timestamp\n    p.cack_psn",
        "sack-reflects-the-ev",
    ),
    Mutant(
        "time stamp not reflected",
        "responder",
        "    p.timestamp = trigger.timestamp\n    p.cack_psn",
        "    p.cack_psn",
        "sack-reflects-the-time-stamp",
    ),
    Mutant(
        "trigger not named",
        "responder",
        "p.ack_offset = max(ack_offset, -0x8000)",
        "p.ack_offset = 0",
        "sack-names-its-trigger",
    ),
    Mutant(
        "mark not echoed",
        "responder",
        "p.m = _skip_advice(st, q, trigger) if trigger.flag_bits & pk.CE else pk.M_NONE",
        "p.m = pk.M_NONE",
        "sack-of-a-marked-packet",
    ),
    Mutant(
        "always SKIP_ONCE",
        "responder",
        "p.m = _skip_advice(st, q, trigger) if trigger.flag_bits & pk.CE else pk.M_NONE",
        "p.m = pk.M_SKIP_ONCE",
        "no-skip-without-mark",
    ),
    Mutant(
        "AckReq ignored",
        "responder",
        "elif p.flag_bits & (pk.CE | pk.RTX | pk.ACK_REQ):",
        "elif p.flag_bits & (pk.CE | pk.RTX):",
        "sack-when-asked",
    ),
    Mutant(
        "SACK for every packet",
        "responder",
        "elif q.sack_credit >= c.sack_bytes:",
        "elif q.sack_credit >= 1:",
        "no-sack-unasked",
    ),
    Mutant(
        "SACK credit ignored",
        "responder",
        "elif q.sack_credit >= c.sack_bytes:",
        "elif q.sack_credit >= 2 * c.sack_bytes:",
        "sack-every-16384-bytes",
    ),
    Mutant(
        "duplicates unanswered",
        "responder",
        "        _send_sack(st, q, p, _sack_base(st, q, seq), 0, seq - q.cack)\n        if q.",
        "        if q.",
        "sack-of-a-duplicate",
    ),
    Mutant(
        "bytes in units of 255",
        "responder",
        "(q.rx_bytes + pk.RCVD_UNIT_BYTES - 1) // pk.RCVD_UNIT_BYTES",
        "q.rx_bytes // pk.RCVD_UNIT_BYTES",
        "rcvd-bytes-count-each-packet-once",
    ),
    Mutant(
        "ooo_count counts cack",
        "responder",
        "p.ooo_count = min(max(q.rx_high - q.cack, 0), 0x7FFF)",
        "p.ooo_count = min(max(q.rx_high, 0), 0x7FFF)",
        "ooo-count-is-the-reach",
    ),
    Mutant(
        "MPR told unasked",
        "responder",
        "    if q.dynamic_mpr:\n",
        "    if True:\n",
        "mpr-is-0-unless-agreed",
    ),
    # responder: NACK
    Mutant(
        "trim without NACK",
        "responder",
        "    if st.config[0].trim_nack == 0:  # MRC 1.9",
        "    if True:  # MRC 1.9",
        "trimmed-is-nacked",
    ),
    Mutant(
        "last hop not told apart",
        "responder",
        "pk.NACK_TRIMMED_LASTHOP if last_hop else pk.NACK_TRIMMED",
        "pk.NACK_TRIMMED",
        "trimmed-at-the-last-hop-is-said-so",
    ),
    Mutant(
        "NACK without EV",
        "responder",
        "    p.entropy = trigger.ev\n    p.timestamp = trigger.timestamp\n    q.n_nack",
        "    p.timestamp = trigger.timestamp\n    q.n_nack",
        "nack-reflects-ev-and-time-stamp",
    ),
    Mutant(
        "trimmed taken for received",
        "responder",
        "    if p.flag_bits & (pk.TRIMMED | pk.TRIMMED_LASTHOP):\n        return on_trimmed",
        "    if p.flag_bits & (pk.TRIMMED | pk.TRIMMED_LASTHOP):\n"
        "        bits.mark(st.bits, q.rx0, q.ring_mask, seq)\n"
        "        q.rx_high = max(q.rx_high, seq)\n"
        "        return on_trimmed",
        "a-trimmed-packet-is-not-received",
    ),
    Mutant(
        "window one short",
        "responder",
        "if seq > q.cack + q.mpr_now:",
        "if seq >= q.cack + q.mpr_now:",
        "the-last-psn-of-the-window",
    ),
    Mutant(
        "window ignored by the responder",
        "responder",
        "if seq > q.cack + q.mpr_now:",
        "if seq > q.cack + q.mpr_now + 1:",
        "above-the-window-is-nacked",
    ),
    # responder: completion
    Mutant(
        "completion early",
        "responder",
        "finished = m.received == m.total",
        "finished = m.received >= m.total - 1",
        "ack-when-a-message-is-complete",
    ),
    Mutant(
        "PSN of an ACK one behind",
        "responder",
        "        q.rx_done += m.total\n",
        "        q.rx_done += m.total - 1\n",
        "ack-when-a-message-is-complete",
    ),
    Mutant(
        "immediates unlimited",
        "responder",
        "if q.wimm_held >= c.max_wimm:",
        "if q.wimm_held > c.max_wimm:",
        "immediates-in-flight-have-a-limit",
    ),
    Mutant(
        "region's end off by one",
        "responder",
        "p.va - r.va > r.length - p.payload_len",
        "p.va - r.va >= r.length - p.payload_len",
        "the-last-bytes-of-the-region-are-taken",
    ),
    Mutant(
        "payload cut to words",
        "responder",
        "st.count[es.PLACED_LENGTH] = p.payload_len",
        "st.count[es.PLACED_LENGTH] = p.payload_len & ~3",
        "lengths-of-every-remainder",
    ),
    Mutant(
        "region's end unchecked",
        "responder",
        "or p.va - r.va > r.length - p.payload_len",
        "or p.va - r.va > r.length",
        "bytes-behind-the-region-are-refused",
    ),
    Mutant(
        "key unchecked",
        "responder",
        "    if r.rkey != p.rkey or r.nic != q.nic:\n",
        "    if r.nic != q.nic:\n",
        "a-wrong-key-places-nothing",
    ),
    Mutant(
        "probe answered as data",
        "responder",
        "_send_sack(st, q, p, base, pk.PROBE_ANSWER, p.ack_offset)",
        "_send_sack(st, q, p, base, 0, p.ack_offset)",
        "a-probe-is-answered",
    ),
    Mutant(
        "probe brings no ACK",
        "responder",
        "    if q.cack == q.rx_high and q.rx_msn > 0:\n        q.control_turn = arrival\n",
        "    if False:\n        q.control_turn = arrival\n",
        "a-probe-brings-a-missing-ack",
    ),
    # endpoint
    Mutant(
        "EV probe answered elsewhere",
        "ports",
        "        plane = int(p.plane)\n        chooses",
        "        plane = 1 - int(p.plane)\n        chooses",
        "an-ev-probe-is-answered-on-its-plane",
    ),
    Mutant(
        "response without id",
        "ports",
        "    answer.psn = p.psn\n",
        "",
        "an-ev-probe-is-answered",
    ),
    Mutant(
        "older status believed",
        "ports",
        "if p.reason == pk.OP_PORT_STATUS and newer:",
        "if p.reason == pk.OP_PORT_STATUS:",
        "an-older-port-status-is-overtaken",
    ),
    Mutant(
        "status repeated at one spacing",
        "ports",
        "peer.spacing = min(2 * peer.spacing, REPEAT_MAX_PS)",
        "peer.spacing = min(peer.spacing, REPEAT_MAX_PS)",
        "a-port-status-is-repeated-until-answered",
    ),
    Mutant(
        "answered status repeated",
        "ports",
        "            peer.pending = 0\n            _plan_status(st, nic, peer, now)\n",
        "            pass\n",
        "an-answered-port-status-is-not-repeated",
    ),
    # requester: sending
    Mutant(
        "VA not advanced",
        "requester",
        "p.va = m.remote_va + index * c.pmtu",
        "p.va = m.remote_va",
        "a-write-is-cut-into-packets",
    ),
    Mutant(
        "length of a packet for that of the message",
        "requester",
        "p.dma_len = m.length",
        "p.dma_len = p.payload_len",
        "a-write-is-cut-into-packets",
    ),
    Mutant(
        "RQMSN of eight bits",
        "requester",
        "m.rqmsn = q.rqmsn_next & 0xFFFF",
        "m.rqmsn = q.rqmsn_next & 0xFF",
        "msns-are-sent-beyond-256",
    ),
    Mutant(
        "RQMSN in plain writes",
        "requester",
        "m.rqmsn = q.rqmsn_next & 0xFFFF if imm >= 0 else 0",
        "m.rqmsn = q.rqmsn_next & 0xFFFF",
        "rqmsn-counts-immediates",
    ),
    Mutant(
        "last packet does not ask",
        "requester",
        "    p.flag_bits = pk.ACK_REQ if last else 0\n",
        "    p.flag_bits = 0\n",
        "the-last-packet-asks",
    ),
    Mutant(
        "NO_TRIM forgotten",
        "requester",
        "if c.trimming == 0 or q.untrimmable:",
        "if c.trimming == 0:",
        "no-trim-for-who-sends-no-trim-nacks",
    ),
    Mutant(
        "window ignored by the requester",
        "requester",
        "if q.nxt >= q.seq_end or q.nxt >= q.una + q.mpr or",
        "if q.nxt >= q.seq_end or q.nxt >= q.una + 2 * q.mpr or",
        "never-beyond-the-window",
    ),
    Mutant(
        "retransmission unmarked",
        "requester",
        "p.flag_bits |= pk.RTX | pk.ACK_REQ",
        "p.flag_bits |= pk.ACK_REQ",
        "a-retransmission-says-the-same",
    ),
    Mutant(
        "immediates of the sender unlimited",
        "requester",
        "or q.wimm_open < st.config[0].max_wimm",
        "or q.wimm_open <= st.config[0].max_wimm",
        "immediates-in-flight-are-limited",
    ),
    Mutant(
        "PSN one behind",
        "requester",
        "p.psn = es.psn_of(q.first_psn, seq)",
        "p.psn = es.psn_of(q.first_psn, seq + 1)",
        "psns-are-consecutive",
    ),
    # requester: what it hears
    Mutant(
        "completion by SACK",
        "requester",
        "    _advance_una(st, q, now)\n    if q.dynamic_mpr",
        "    _advance_una(st, q, now)\n"
        "    if q.una == q.nxt and q.msg_done < q.msg_cur:\n"
        "        es.complete(st, es.DONE_SEND, q.index, 0, 0)\n"
        "    if q.dynamic_mpr",
        "a-write-completes-with-its-ack",
    ),
    Mutant(
        "ACK completes one more",
        "requester",
        "done = q.msg_done + es.signed(int(p.msn) - q.msg_done, 16) + 1",
        "done = min(q.msg_done + es.signed(int(p.msn) - q.msg_done, 16) + 2, q.msg_cur)",
        "an-ack-completes-nothing-behind-it",
    ),
    Mutant(
        "UNEXP_EVENT retried",
        "requester",
        "if reason == pk.NACK_UNEXP_EVENT:",
        "if False:",
        "an-unexpected-event-ends-the-qp",
    ),
    Mutant(
        "resource NACK ignored",
        "requester",
        "            fate.enter(st, q, seq, fate.REFUSAL, now)\n    if reason in pk",
        "            pass\n    if reason in pk",
        "no-bitmap-brings-the-packet-again",
    ),
    Mutant(
        "trim NACK ignored",
        "requester",
        "    fate.enter(st, q, seq, fate.TRIM, now)\n    if last_hop:",
        "    if last_hop:",
        "a-trim-nack-brings-the-packet-again",
    ),
    Mutant(
        "MPR believed unagreed",
        "requester",
        "if q.dynamic_mpr and newest and p.mpr > 0:",
        "if newest and p.mpr > 0:",
        "a-window-not-agreed-is-ignored",
    ),
    Mutant(
        "SACK of what was never sent believed",
        "requester",
        "    if not _can_be_true(q, cack, base, p.bitmap, units):\n        return NEVER_SENT\n",
        "    cack = min(cack, q.nxt - 1)\n",
        "a-sack-of-what-was-never-sent",
    ),
    # paths and timers
    Mutant(
        "mark without effect",
        "beliefs",
        "def on_mark(st, q, ev, now):\n",
        "def on_mark(st, q, ev, now):\n    return\n\n\ndef _on_mark(st, q, ev, now):\n",
        "a-skipped-path-is-passed-over-once",
    ),
    Mutant(
        "EV never revived",
        "probes",
        "def on_probe_answer(st, q, value, probe_id, left_at, marked, now):\n",
        "def on_probe_answer(st, q, value, probe_id, left_at, marked, now):\n    return 0\n\n\n"
        "def _on_probe_answer(st, q, value, probe_id, left_at, marked, now):\n",
        "a-path-that-answers-serves-again",
    ),
    Mutant(
        "retries without end",
        "loss",
        "return exp_cnt != EXP_CNT_INFINITE and epoch >= linear_cnt + exp_cnt",
        "return False",
        "retries-have-an-end",
    ),
]


@contextlib.contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """The engine with one line changed, as plain Python, in all modules that use it."""
    module = sys.modules[f"openmrc.engine.{mutant.module}"]
    text = Path(str(module.__file__)).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1, f"{mutant.name}: {text.count(mutant.old)} times"
    space: dict[str, Any] = {"__name__": module.__name__, "__file__": module.__file__}
    exec(compile(text.replace(mutant.old, mutant.new), str(module.__file__), "exec"), space)
    replaced = {
        id(old): space[name]
        for name, old in vars(module).items()
        if isinstance(old, FunctionType) and old.__module__ == module.__name__ and name in space
    }
    changed = []
    for name, user in list(sys.modules.items()):
        if name.startswith(("openmrc.engine.", "openmrc.conform.")):
            for attribute, value in list(vars(user).items()):
                if id(value) in replaced:
                    changed.append((user, attribute, value))
                    setattr(user, attribute, replaced[id(value)])
    try:
        yield
    finally:
        for user, attribute, value in changed:
            setattr(user, attribute, value)
