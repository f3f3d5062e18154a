"""Packet sequences whose every state is hashed: plain and compiled engine must agree on each."""

from __future__ import annotations

import hashlib

from tests.engine.pair import Pair

PARTS = ("qp", "slot", "plane", "ev", "blame", "order", "message", "rx_message", "bits", "nic")


def digest(pair: Pair) -> str:
    """Hash of all state but `out` and `done`, which are scratch."""
    h = hashlib.sha256()
    for name in (*PARTS, "peer", "region", "request", "stream", "reps"):
        h.update(getattr(pair.st, name).tobytes())
    for x in pair.log[-50:]:
        h.update(repr((x.at, x.p.item())).encode())
    return h.hexdigest()[:16]


def healthy() -> Pair:
    pair = Pair(planes=2, evs=4, checked=False)
    pair.post(100 * 4096, imm=3)
    pair.post(77, src=1)
    return pair


def troubled() -> Pair:
    """Losses, trims, marks, lateness, duplicates, a dead plane, a wrap-around of the PSN."""
    pair = Pair(planes=4, evs=4, backup=2, first_psn=(1 << 24) - 100, checked=False)
    for seq in (3, 17, 18, 19, 150):
        pair.drop(seq=seq)
    pair.trim(next=6, plane=2)
    pair.trim(next=4, plane=3, last_hop=True)
    pair.mark(next=40, plane=1)
    pair.delay(us=14, next=25, plane=0)
    pair.duplicate(next=9, us=4)
    pair.drop(next=9, kind="sack")
    pair.cut(plane=3)
    pair.post(250 * 4096)
    pair.post(50 * 4096, imm=1, src=1)
    return pair


def ports() -> Pair:
    pair = Pair(planes=4, evs=2, rto_exponent=6, checked=False)
    pair.post(200 * 4096)
    pair.advance(us=9)
    pair.port(1, 1, up=False)
    pair.deny(0, 1)
    return pair


def refused() -> Pair:
    """Access error, then a QP that gives up."""
    pair = Pair(planes=2, evs=2, qps=2, rto_exponent=6, linear_cnt=2, exp_cnt=2, checked=False)
    pair.cut(src=0, kind="data", psn=pair.psn(0))
    pair.post(4096, rkey=5, qp=1)
    pair.post(8192)
    pair.cut(plane=0)
    pair.cut(plane=1)
    return pair


def recycled() -> Pair:
    """REPS: marks, a loss and so a freeze, a denied EV; and marks that make nothing SKIP."""
    pair = Pair(
        planes=2, evs=8, backup=4, checked=False, paths="reps", sack_bytes=1, ignore_marks=1
    )
    pair.mark(next=40, plane=1)
    pair.trim(next=3, plane=0)
    pair.drop(seq=60)
    pair.post(250 * 4096)
    pair.post(50 * 4096, src=1)
    pair.advance(us=9)
    pair.deny(0, 3)
    return pair


def run() -> list[str]:
    """Digests of all sequences, one each five microseconds."""
    lines = []
    for start in (healthy, troubled, ports, refused, recycled):
        pair = start()
        for step in range(30):
            pair.advance(us=5 if step < 24 else 300)
            lines.append(f"{start.__name__} {pair.now} {digest(pair)}")
    return lines


if __name__ == "__main__":
    print("\n".join(run()))
