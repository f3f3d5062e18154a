"""The controller's half of the C API as a program calls it, over a fabric inside this process."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from openmrc.capi.control import formats, layouts
from openmrc.capi.control.formats import UNPOPULATED, Ev
from openmrc.capi.control.layouts import EV_BYTES, NUMBERS
from openmrc.capi.control.structures import C, E, F
from openmrc.capi.layouts import Struct
from openmrc.capi.places import Block
from openmrc.verbs import QueuePair
from openmrc.verbs.inside import Inside
from openmrc.wire import addresses
from tests.capi.handles import Open, Peer

GOOD, BAD, DENIED = (NUMBERS[f"MRC_CTL_EV_{name}"] for name in ("GOOD", "ASSUMED_BAD", "DENIED"))
AUTO, EXPLICIT, GENERATED = (NUMBERS[f"MRC_CTL_EV_MODE_{n}"] for n in ("AUTO", "EXP", "GEN"))
STEV = NUMBERS["MRC_CTL_EV_FMT_MODE_STEV"]
INIT, OFFLINE, ONLINE = range(3)
REPLACE, MODIFY_STATE, QUERY_STATE, QUERY_ARRAY = range(4)
PATIENCE_S = 20
FORM = 13  # a format profile: the EV as it is in a packet


def rows(struct: Struct, n: int) -> np.ndarray:
    return np.zeros(n, struct.dtype)


def number() -> Block:
    return Block(Struct("", (("int", "value"),)))


def wait_for(what: Callable[[], Any]) -> Any:
    until = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < until
        time.sleep(0.005)
    return found


class Ctl:
    """A controller of the device that `there` has open."""

    def __init__(self, there: Open, fabric: Inside) -> None:
        self.there, self.fabric, self.api, self.mrc = there, fabric, there.api, there.mrc

    # --- profiles

    def modify(
        self, kind: str, profile: int, mask: int, op: Any = None, **attributes: Any
    ) -> tuple[int, int]:
        return self._profile("modify", kind, profile, mask, op, attributes)[0]

    def query(self, kind: str, profile: int, mask: int, op: Any = None) -> Any:
        answer, record = self._profile("query", kind, profile, mask, op, {})
        assert answer == (0, 0), errno.errorcode[answer[1]]
        return record

    def _profile(
        self, verb: str, kind: str, profile: int, mask: int, op: Any, attributes: dict[str, Any]
    ) -> tuple[tuple[int, int], Any]:
        struct, part = {
            "ev_fmt": (layouts.FMT_ATTR, "ev_fmt_op"),
            "ev": (layouts.EV_ATTR, "ev_op"),
            "cc": (layouts.CC_ATTR, ""),
        }[kind]
        a = Block(struct)
        for name, value in attributes.items():
            a.record[name] = value
        if op is not None:
            which, listed, *other = op
            places = a.record[other[0] if other else part]
            names = places.dtype.names or ()
            places[names[0]], places[names[1]] = which, listed.ctypes.data
            places[names[2]] = len(listed)
        name = f"mrc_ctl_{verb}_{kind}_profile"
        return self.api(name, self.mrc, profile, a, mask), a.record

    def form(self) -> None:
        """A format profile that is the EV in a packet."""
        widths = rows(layouts.FMT_FIELD, 1)
        widths["width"] = 32
        mask = F["STATE"] | F["MODE"] | F["OP"]
        made = self.modify(
            "ev_fmt", FORM, mask, (0, widths), profile_state=OFFLINE, ev_fmt_mode=STEV
        )
        assert made == (0, 0)
        assert self.modify("ev_fmt", FORM, F["STATE"], profile_state=ONLINE) == (0, 0)

    def explicit(self, profile: int, evs: Sequence[Ev], min_active: int = 0) -> None:
        """An EV profile of these EVs, ONLINE; it reports all changes."""
        mask = sum(E[n] for n in ("STATE", "MODE", "FMT_ID", "COUNT", "MIN_ACTIVE", "EVENT_MASK"))
        given = {"ev_mode": EXPLICIT, "ev_fmt_profile_id": FORM, "ev_count": len(evs)}
        given |= {"ev_min_active": min_active, "ev_event_mask": GOOD | BAD}
        assert self.modify("ev", profile, mask, profile_state=OFFLINE, **given) == (0, 0)
        assert self.replace(profile, [(UNPOPULATED, one) for one in evs]) == (0, 0)
        assert self.modify("ev", profile, E["STATE"], profile_state=ONLINE) == (0, 0)

    def replace(
        self, profile: int, pairs: Sequence[tuple[Ev, Ev]], state: int = GOOD, flags: int = 0
    ) -> tuple[int, int]:
        listed = rows(layouts.ENTRY, len(pairs))
        for row, (old, new) in zip(listed, pairs, strict=True):
            put_ev(row["ev"], old)
            put_ev(row["ev_new"], new)
            row["state"], row["flags"] = state, flags
        return self.modify("ev", profile, E["EV_OP"], (REPLACE, listed))

    def state(self, profile: int, ev: Ev, state: int) -> tuple[int, int]:
        """Set the state of an EV."""
        listed = rows(layouts.ENTRY, 1)
        put_ev(listed[0]["ev"], ev)
        listed["state"] = state
        return self.modify("ev", profile, E["EV_OP"], (MODIFY_STATE, listed))

    def array(self, profile: int, room: int = 256) -> dict[Ev, int]:
        """The EVs of a profile, and their states."""
        listed = rows(layouts.ENTRY, room)
        found = self.query("ev", profile, E["EV_OP"], (QUERY_ARRAY, listed))
        return {
            take_ev(row["ev"]): int(row["state"])
            for row in listed[: int(found["ev_op"]["entry_count"])]
        }

    # --- events and probes

    def queue(self, depth: int = 64, channel: int = 0) -> int:
        return self.api.must("mrc_ctl_create_ev_event_cq", self.mrc, depth, 0, channel, 0)

    def events(self, queue: int, most: int = 64) -> list[tuple[int, Ev, int, int]]:
        """Profile, EV, state and drop count of what has happened."""
        listed = rows(layouts.EV_EVENT, most)
        n, code = self.api("mrc_ctl_poll_ev_event", queue, most, listed.ctypes.data)
        assert code == 0
        return [
            (
                int(one["profile_id"]),
                take_ev(one["ev"]),
                int(one["state"]),
                int(one["drop_count"]),
            )
            for one in listed[:n]
        ]

    def probe(
        self, evs: Sequence[Ev], to: int, timeout_ms: float = 2000, **fields: int
    ) -> tuple[int, list[tuple[int, int, int]]]:
        """Probe a NIC on EVs: the errno, and which were answered, on which port, in how many ns."""
        asked, answers, n = (
            rows(layouts.REQUEST, len(evs)),
            rows(layouts.RESPONSE, len(evs)),
            number(),
        )
        own = addresses.ipv6(0, 0).packed
        for i, ev in enumerate(evs):
            asked[i]["req_id"], asked[i]["ev_fmt_mode"] = 100 + i, STEV
            asked[i]["sgid"]["raw"] = list(own)
            asked[i]["dgid"]["raw"] = list(addresses.ipv6(to, 0).packed)
            put_ev(asked[i]["req_ev"], ev)
            for name, value in fields.items():
                asked[i][name] = value
        _, code = self.api(
            "mrc_ctl_ep_batch_send_wait", self.mrc, 0, 0, asked.ctypes.data, len(evs),
            round(timeout_ms * 1e6), answers.ctypes.data, n,
        )  # fmt: skip
        found = answers[: int(n.record["value"])]
        return code, [(int(a["req_id"]) - 100, int(a["port"]), int(a["rtt"])) for a in found]

    # --- queue pairs

    def evs(self, to: int) -> list[Ev]:
        """Every path to a NIC, ports in turn."""
        f = self.fabric.fabric
        n = f.n_paths(0, to, 0)
        return [
            formats.packed(f.ev_of_path(0, to, plane, i), 32, plane + 1)
            for i in range(n)
            for plane in range(f.n_planes)
        ]

    def connect(self, to: int, ev: int = 0, cc: int = 0) -> tuple[int, QueuePair]:
        """A queue pair with these profiles, connected to one of a NIC."""
        device = self.fabric.device(to)
        theirs, qp = device.create_qp(device.create_cq()), self.there.qp()
        peer = Peer(device, addresses.ipv6(to, 0).packed)
        self.there.meet(qp, theirs, peer, profiles=(ev, cc))
        return qp, theirs


def put_ev(row: Any, ev: Ev) -> None:
    row["val"] = np.frombuffer(ev.value, np.uint8, EV_BYTES)
    row["port"] = ev.port


def take_ev(row: Any) -> Ev:
    return Ev(row["val"].tobytes(), int(row["port"]))


assert C["CONFIG"] == 8
