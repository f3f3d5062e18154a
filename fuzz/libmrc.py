"""Random sequences of calls to libmrc: no crash, no wild write, and every failure has an errno.

The stub is compiled with AddressSanitizer and UndefinedBehaviorSanitizer. A handle or pointer to an
object is one that is alive, one that is gone, of another kind, NULL or a random number; structures
are there, or NULL, with random fields, between guards that must stay as they are. Several threads
share everything. What is done follows from the seed that is printed, but for who of the threads
comes first.

    python fuzz/libmrc.py --calls 100000 --seed 1
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from openmrc.capi import build, hot, layouts, reach
from openmrc.capi.calls import (
    ABSENT_CALLS,
    CODE,
    CTL_CALLS,
    MINUS,
    MRC_CALLS,
    NEGATIVE,
    NULL,
    PLAIN,
    VERBS_CALLS,
    Call,
)
from openmrc.capi.control import configuring
from openmrc.capi.control import layouts as ctl
from openmrc.capi.layouts import NUMBERS, Struct

UBSAN = ("-fsanitize=undefined", "-fno-sanitize-recover=undefined")
PLANE, ELSEWHERE = "127.0.13.1", ("127.0.13.2", 4791)
GUARD, GUARD_BYTES = 0xA7, 64
KEPT = 64  # objects of a kind that are remembered, alive or gone
MEMORY = np.zeros(1 << 20, np.uint8)
STRUCTS = {
    f"struct {one.name} *": one
    for one in (*layouts.VERBS_STRUCTS, *layouts.MRC_STRUCTS, *ctl.STRUCTS)
}
ROWS = 16  # of arrays
ARRAYS = (layouts.SGE, ctl.FMT_FIELD, ctl.FIELD, ctl.ENTRY, ctl.REQUEST, ctl.RESPONSE, ctl.EV_EVENT)
COUNTS = (0, 1, 1, 2, 2, 4, ROWS, -1)
NAMES = [ctypes.create_string_buffer(one) for one in (b"uet-1.0-nscc", b"uet-1.0", b"")]
STRUCTS["union ibv_gid *"] = layouts.GID
# Objects of the library: their structures, if any, are its own.
OBJECTS = {f"struct {name} *" for name in layouts.HANDLES} | {
    f"struct {name} *" for name in ("ibv_device", "ibv_context", "ibv_pd", "ibv_mr", "ibv_cq")
}
MADE_BY = {"mrc_create_comp_channel": "struct mrc_comp_channel *"}
ENDS = {"ibv_close_device", "ibv_dealloc_pd", "ibv_dereg_mr"} | {
    f"mrc_destroy_{what}" for what in ("context", "comp_channel", "cq", "qp", "qp_hint")
}
GROUND = (
    ("struct ibv_device *", "ibv_get_device_list", ()),
    ("struct ibv_context *", "ibv_open_device", ("struct ibv_device *",)),
    ("struct mrc_context *", "mrc_create_context", ("struct ibv_context *",)),
    ("struct ibv_pd *", "ibv_alloc_pd", ("struct ibv_context *",)),
    ("struct ibv_mr *", "ibv_reg_mr", ("struct ibv_pd *",)),
    ("struct mrc_cq *", "mrc_create_cq", ("struct mrc_context *",)),
)
MORE = {"ibv_reg_mr": (int(MEMORY.ctypes.data), 1 << 16, 3), "mrc_create_cq": (256,)}
SELDOM = {
    "ibv_close_device": 0.003,
    "ibv_open_device": 0.02,
    "mrc_destroy_context": 0.1,
    "mrc_post_send": 9.0,
}
NUMBERS_TRIED = (0, 1, 2, 3, 4, 7, 8, 16, 128, 255, 4096, 1 << 16, (1 << 31) - 1, -1, 1 << 40)
STATES = [NUMBERS[f"IBV_QPS_{name}"] for name in ("INIT", "RTR", "RTS", "ERR", "RESET")]
STEP = NUMBERS["IBV_QP_STATE"]
NEEDS = STEP | sum(NUMBERS[f"IBV_QP_{name}"] for name in ("AV", "DEST_QPN", "RQ_PSN", "SQ_PSN"))


class Guarded:
    """Room of a caller's, with guards before and behind it."""

    def __init__(self, n_bytes: int) -> None:
        self.room = np.full(n_bytes + 2 * GUARD_BYTES, GUARD, np.uint8)
        self.inner = self.room[GUARD_BYTES : GUARD_BYTES + n_bytes]
        self.inner[:] = 0
        self.address = int(self.inner.ctypes.data)

    def check(self, name: str) -> None:
        """Raise if a call wrote into the guards."""
        ends = np.concatenate((self.room[:GUARD_BYTES], self.room[-GUARD_BYTES:]))
        if (ends != GUARD).any():
            raise SystemExit(f"{name}: it wrote outside of what it was given")


class Fuzzer:
    """One thread's calls."""

    def __init__(
        self, api: dict[str, Any], pools: dict[str, list[int]], seed: int, control: float
    ) -> None:
        self.control = control
        self.api, self.pools, self.rng = api, pools, random.Random(seed)
        every = (*MRC_CALLS, *CTL_CALLS, *VERBS_CALLS, *ABSENT_CALLS)
        self.calls = [one for one in every if one.name in api]
        self.weights = [self.weight(one) for one in self.calls]
        self.told: Counter[str] = Counter()
        self.blocks: list[Guarded] = []

    def weight(self, call: Call) -> float:
        """How often a function is called."""
        if call in ABSENT_CALLS:
            return 0.05
        often = self.control if call in CTL_CALLS else 1.0
        posts = any(word in call.name for word in ("post", "poll", "modify_qp", "create", "reg_mr"))
        return often * SELDOM.get(call.name, 4.0 if posts else 1.0)

    def object(self, kind: str) -> int:
        """A handle or pointer to an object, right or wrong."""
        rng, draw = self.rng, self.rng.random()
        alive, known = self.pools.get(kind), self.pools.get(f"gone {kind}")
        if alive and draw < 0.88:
            return rng.choice(alive)
        if known and draw < 0.93:
            return rng.choice(known)
        if draw < 0.96:
            return 0
        others = [one for pool in self.pools.values() for one in pool]
        return rng.choice(others) if others and draw < 0.99 else rng.getrandbits(63)

    def structure(self, struct: Struct, depth: int = 0) -> int:
        """A structure with random fields, of buffers as many as a request may have; its address, or
        NULL.
        """
        if self.rng.random() < 0.03:
            return 0
        n = ROWS if struct in ARRAYS else 1
        block = Guarded(n * struct.dtype.itemsize)
        self.blocks.append(block)
        records = block.inner.view(struct.dtype)
        for i in range(n):
            self.fill(struct, records[i : i + 1].reshape(()), depth)
        if struct is layouts.SEND_WR:
            self.make_readable(records[0])
        return block.address

    def make_readable(self, record: Any) -> None:
        """What is inline is copied, as C does, without a look at it: it is NULL, or there."""
        if not int(record["send_flags"]) & NUMBERS["IBV_SEND_INLINE"] or not int(record["sg_list"]):
            return
        room = (ctypes.c_char * (hot.SGES_MAX * layouts.SGE.dtype.itemsize)).from_address(
            int(record["sg_list"])
        )
        for sge in np.frombuffer(memoryview(room), layouts.SGE.dtype):
            sge["addr"] = self.rng.choice((0, int(MEMORY.ctypes.data), int(MEMORY.ctypes.data)))
            sge["length"] = min(int(sge["length"]), hot.INLINE_MAX)

    def fill(self, struct: Struct, record: Any, depth: int) -> None:
        """Random values, of fields and of what they point to."""
        rng = self.rng
        for kind, name, *length in struct.rows:
            if isinstance(kind, Struct):
                if not struct.union and name != "alt_ah_attr":
                    self.fill(kind, record[name], depth)
            elif kind in OBJECTS:
                record[name] = self.object(kind)
            elif kind in STRUCTS:  # a list of requests goes on, or a request has memory
                goes_on = depth < 3 and rng.random() < (0.3 if name == "next" else 0.9)
                record[name] = self.structure(STRUCTS[kind], depth + 1) if goes_on else 0
            elif length or kind.endswith("*"):
                continue
            elif rng.random() < 0.5:
                record[name] = rng.choice(NUMBERS_TRIED) & (1 << 8 * record[name].itemsize - 1) - 1
        self.make_sense(struct, record)
        self.bound(struct, record)

    def make_sense(self, struct: Struct, record: Any) -> None:
        """Most of the time, what leads further than the first check."""
        rng = self.rng
        if rng.random() < 0.1:
            return
        if struct is layouts.QP_ATTR:
            record["qp_state"], record["path_mtu"] = rng.choice(STATES), NUMBERS["IBV_MTU_1024"]
            record["ah_attr"]["is_global"] = 1
            there = reach.gid_of(reach.Reach(*ELSEWHERE, ()))
            record["ah_attr"]["grh"]["dgid"]["raw"] = list(there)
            record["dest_qp_num"] = rng.randrange(3, 1 << 24)
        elif struct is layouts.SEND_WR:
            record["opcode"], record["num_sge"] = rng.randrange(2), rng.choice((0, 1, 1, 2, 3))
            record["send_flags"] = rng.randrange(16)
        elif struct is layouts.RECV_WR:
            record["num_sge"] = rng.randrange(2)
        elif struct is layouts.SGE:
            keys = self.pools["key"]
            record["addr"] = int(MEMORY.ctypes.data) + rng.randrange(4096)
            record["length"] = rng.randrange(1 << 14)
            record["lkey"] = rng.choice(keys) if keys else 0
        elif struct is layouts.MRC_QP_ATTR:
            for name in ("ev_profile_id", "cc_profile_id"):
                record["profile"][name] = rng.choice((0, 0, 1, 2))
        elif struct.name.startswith("mrc_ctl_"):
            self.make_ctl_sense(struct, record)
        elif struct is layouts.MRC_QP_INIT_ATTR:
            record["protocol_version"] = rng.randrange(2)
            for name in ("max_send_sge", "max_recv_sge"):
                record["cap"][name] = rng.choice((1, 3, hot.SGES_MAX))
            record["cap"]["max_inline_data"] = rng.choice((0, 64, hot.INLINE_MAX))

    def make_ctl_sense(self, struct: Struct, record: Any) -> None:
        """The same for what controllers pass."""
        rng = self.rng
        for name in ("profile_state", "cur_profile_state"):
            if name in (struct.dtype.names or ()):
                record[name] = rng.choice((0, 1, 1, 2, 2))
        if struct is ctl.FMT_ATTR:
            record["ev_fmt_mode"] = rng.choice((1, 4, 4, 4))
        elif struct is ctl.FMT_FIELD:
            record["width"] = rng.choice((0, 1, 4, 8, 16))
        elif struct is ctl.FIELD:
            record["width"], record["mask"] = rng.choice((1, 4, 8)), rng.choice((0, 1, 0xF))
            record["init_val"], record["min_val"], record["max_val"] = 0, 0, rng.choice((0, 1))
        elif struct is ctl.EV_ATTR:
            record["ev_mode"], record["ev_count"] = rng.choice((1, 2, 2, 4)), rng.choice((1, 2, 4))
            record["ev_fmt_profile_id"] = rng.choice((0, 1, 1, 2))
            record["ev_min_active"], record["ev_event_mask"] = rng.randrange(3), rng.randrange(4)
        elif struct is ctl.EV:
            # a source port, as the device may have it
            record["val"][:2] = list((0xC000 + rng.randrange(4)).to_bytes(2, "big"))
            record["val"][2:], record["port"] = 0, rng.choice((0, 1, 1, 1, 2))
            if record["port"] == 0:
                record["val"] = 0
        elif struct is ctl.ENTRY:
            record["state"], record["flags"] = rng.choice((1, 2, 4)), rng.randrange(2)
        elif struct is ctl.REQUEST:
            record["req_id"], record["ev_fmt_mode"] = rng.getrandbits(16), rng.choice((4, 4, 1))
            own = reach.gid_of(reach.Reach(PLANE, 4791, ()))
            record["sgid"]["raw"] = list(own)
            record["dgid"]["raw"] = list(reach.gid_of(reach.Reach(*ELSEWHERE, ())))
        elif struct is ctl.CC_ATTR:
            record["algorithm"] = ctypes.addressof(rng.choice(NAMES)) if rng.random() < 0.9 else 0
            record["cc_config"] = self.structure(ctl.NSCC_CFG)
        elif struct is ctl.NSCC_CFG:
            for name in struct.dtype.names or ():
                record[name] = rng.choice((1, 1, 3, 200))
            record["max_md_jump"] = 0.5

    def bound(self, struct: Struct, record: Any) -> None:
        """Whatever is drawn: no count is above the rows that are there, as C has it."""
        for part, name in (
            ("ev_fmt_op", "fmt_field_count"),
            ("ev_op", "entry_count"),
            ("ev_fields_op", "field_count"),
        ):
            if part in (struct.dtype.names or ()):
                record[part][name] = self.rng.choice(COUNTS)
                record[part]["op"] = self.rng.randrange(4 if part == "ev_op" else 2)
        if struct is ctl.CC_ATTR and not record["algorithm"]:
            record["cc_config"] = 0

    def argument(self, call: Call, kind: str, name: str) -> int:
        """One argument of a call."""
        rng = self.rng
        if call.name == "mrc_ctl_poll_ev_event" and name == "n":
            return rng.choice(COUNTS)
        if call in CTL_CALLS and kind in ("int", "uint32_t", "uint64_t", "uint8_t"):
            return self.ctl_number(call, name)
        if kind.startswith("enum mrc_ctl_"):
            return rng.choice((0, 0, 1, 7))
        if call.name == "mrc_poll_cq" and name == "n":
            return rng.choice((0, 1, 1, 1, -1))  # there is room for one
        if kind in OBJECTS:
            return self.object(kind)
        if kind in STRUCTS:
            return self.structure(STRUCTS[kind])
        if kind == "void *" and name == "address":
            return rng.choice((int(MEMORY.ctypes.data), int(MEMORY.ctypes.data), 0, 4096))
        if name == "length":
            return rng.choice((4096, 1 << 16, 0, -1, 1 << 50))
        if name == "iova":
            return int(MEMORY.ctypes.data)
        if name == "access":
            return rng.choice((1, 3, 3, 3, 2, 1 << 20 | 3, -1))
        if name == "verbs_mask":
            return rng.choice((NEEDS, NEEDS, STEP, 0, -1))
        if name == "mask":
            return rng.choice((0, 0, 0, 1 << rng.randrange(32), -1))
        if name in ("list", "bad", "channel", "cq") and kind.endswith("**"):
            return self.place()
        if kind.endswith("*"):
            return self.place() if rng.random() < 0.97 else 0
        return rng.choice(NUMBERS_TRIED)

    def ctl_number(self, call: Call, name: str) -> int:
        """A number that a controller passes."""
        rng = self.rng
        if name == "mask":
            kind = call.name.rpartition("_profile")[0].partition("ify_")[2] or "query"
            likely = {
                "ev_fmt": (0b1101, 0b1101, 1, 0b1000, 0b1111),
                "ev": (0b1111101, 0b1111101, 1, 1, 1 << 7, 1 << 7, 0b101100101, 1 << 6),
                "cc": (0b101, 0b1001, 0b1001, 1, 0b1000),
            }
            return rng.choice((*likely.get(kind, (1, 1, 0b10, 1 << 3, 1 << 7)), 0, -1))
        return {
            "number": rng.choice((0, 1, 1, 1, 2, -1)),
            "port": rng.choice((0, 1, 1, 2, 255)),
            "num_req": rng.choice(COUNTS),
            "req_tc": rng.choice((0, 0, 46, 9)),
            "rsp_timeout": rng.choice((0, 1, 1_000_000)),
            "cqe": rng.choice((1, 2, 16, 0, -1)),
        }.get(name, 0)

    def place(self) -> int:
        """Room for a number or a pointer."""
        block = Guarded(8)
        self.blocks.append(block)
        return block.address

    def step(self) -> None:
        """One call, and what must hold after it."""
        self.ground()
        [call] = self.rng.choices(self.calls, self.weights)
        self.blocks = []
        given = [self.argument(call, *one) for one in call.parameters]
        ctypes.set_errno(0)
        returned = int(self.api[call.name](*given) or 0)
        code = ctypes.get_errno()
        for block in self.blocks:
            block.check(call.name)
        failed = {CODE: returned != 0, MINUS: returned < 0, NULL: returned == 0}
        failed[NEGATIVE] = returned < 0
        bad = failed.get(call.answers, False)
        if bad and not code:
            raise SystemExit(f"{call.name}: it failed ({returned}) without an errno")
        if bad and call.answers == NEGATIVE and returned != -code:
            raise SystemExit(f"{call.name}: it returned {returned}, and errno is {code}")
        if bad and call.answers == CODE and returned != code:
            raise SystemExit(f"{call.name}: it returned {returned}, and errno is {code}")
        self.told[errno.errorcode.get(code, "?") if bad else "done"] += 1
        if not bad:
            self.keep(call, given, returned)

    def keep(self, call: Call, given: list[int], returned: int) -> None:
        """Remember what was made; what may wait is told not to."""
        kind = call.result
        if call.name == "ibv_get_device_list":
            devices = ctypes.cast(returned, ctypes.POINTER(ctypes.c_uint64))
            self.remember("struct ibv_device *", devices[0])
            return self.api["ibv_free_device_list"](returned)
        if call.name in MADE_BY:
            kind, returned = MADE_BY[call.name], ctypes.c_int64.from_address(given[1]).value
            fd = ctypes.c_int(0)
            self.api["mrc_get_comp_channel_fd"](returned, ctypes.addressof(fd))
            os.set_blocking(fd.value, False)
        if call.name == "ibv_open_device":
            record = self.seen(returned, layouts.CONTEXT)
            os.set_blocking(int(record["async_fd"]), False)
        if call.name.startswith("ibv_reg_mr"):
            self.remember("key", int(self.seen(returned, layouts.MR)["lkey"]))
        if call.name == "mrc_get_cq_event":  # who destroys the queue waits for this
            self.api["mrc_ack_cq_events"](ctypes.c_int64.from_address(given[1]).value, 1)
        if call.name in ENDS:
            self.forget(call.parameters[0][0], given[0])
        if kind in OBJECTS:
            self.remember(kind, returned)
        return None

    def forget(self, kind: str, value: int) -> None:
        """An object is gone; with the last context of a device all are."""
        alive = self.pools.get(kind, [])
        if value in alive:
            alive.remove(value)
            self.remember(f"gone {kind}", value)
        if kind == "struct ibv_context *" and not alive:
            for other in OBJECTS - {"struct ibv_device *", kind}:
                for one in list(self.pools.get(other, [])):
                    self.forget(other, one)

    def ground(self) -> None:
        """What every other call needs, where it is missing."""
        for kind, name, above in GROUND:
            if not self.pools.get(kind):
                made = [self.pools[one][0] for one in above if self.pools.get(one)]
                if len(made) < len(above):
                    return
                [call] = [one for one in self.calls if one.name == name]
                given = [*made, *MORE.get(name, ())]
                if returned := int(
                    self.api[name](*given, *[0] * (len(call.parameters) - len(given)))
                ):
                    self.keep(call, given, returned)

    def seen(self, address: int, struct: Struct) -> Any:
        """A structure of the library."""
        room = (ctypes.c_char * struct.dtype.itemsize).from_address(address)
        return np.frombuffer(memoryview(room), struct.dtype)[0]

    def remember(self, kind: str, value: int) -> None:
        """Keep an object; it stays known when it is gone."""
        pool = self.pools.setdefault(kind, [])
        if value and value not in pool:
            pool.append(value)
            del pool[:-KEPT]


def functions(directory: Path) -> dict[str, Any]:
    """Every function of both libraries, by name."""
    found = {}
    for file, calls in (
        (build.LIBMRC, (*MRC_CALLS, *CTL_CALLS)),
        (build.LIBIBVERBS, (*VERBS_CALLS, *ABSENT_CALLS)),
    ):
        where = ctypes.CDLL(str(directory / file), use_errno=True)
        for call in calls:
            if call.answers == PLAIN and call.name != "ibv_fork_init":
                continue  # texts
            function = getattr(where, call.name)
            function.argtypes = [ctypes.c_int64] * len(call.parameters)
            function.restype = ctypes.c_int64 if call.result.endswith("*") else ctypes.c_int
            found[call.name] = function
    return found


def elsewhere() -> None:
    """A peer that says where it is, and is not there: requests go out, and nothing comes back."""
    told = [{"address": ELSEWHERE[0], "port": ELSEWHERE[1], "sources": [0xC000]}]
    import socket

    server = socket.create_server(ELSEWHERE)
    while True:
        asking, _ = server.accept()
        with asking:
            asking.sendall(json.dumps(told).encode() + b"\n")


def run(directory: Path, calls: int, seed: int, threads: int, control: float) -> None:
    """All calls of one seed; the first failure ends it."""
    threading.Thread(target=elsewhere, daemon=True).start()
    configuring.is_privileged = lambda: True
    api, pools = functions(directory), {"key": []}
    fuzzers = [Fuzzer(api, pools, seed * 1000 + i, control) for i in range(threads)]
    failures: list[BaseException] = []

    def work(one: Fuzzer) -> None:
        try:
            for _ in range(calls // threads):
                if failures:
                    return
                one.step()
        except BaseException as error:
            failures.append(error)

    started = time.perf_counter()
    running = [threading.Thread(target=work, args=(one,)) for one in fuzzers]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failures:
        raise failures[0]
    told = sum((one.told for one in fuzzers), Counter())
    words = ", ".join(f"{n} {name}" for name, n in told.most_common())
    took = time.perf_counter() - started
    print(f"seed {seed}: {told.total()} calls by {threads} threads, {took:.0f} s: {words}")


def main() -> None:
    """Compile the libraries, and run in a process with the sanitizers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    words = "how many times as often the functions of mrc_ctl.h are called (1)"
    parser.add_argument("--control", type=float, default=1.0, help=words)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        run(given.inside, given.calls, given.seed, given.threads, given.control)
        sys.stdout.flush()
        os._exit(0)  # threads of the device may be in the kernel
    with tempfile.TemporaryDirectory() as folder:
        build.build(Path(folder), (*build.ASAN, *UBSAN))
        environment = {
            **os.environ,
            "LD_PRELOAD": build.sanitizer(),
            "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
            "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",  # Python's own are many
            "OPENMRC_INTERFACES": PLANE,
        }
        environment.pop("OPENMRC_HOST", None)
        words = [sys.executable, __file__, "--inside", folder, "--calls", str(given.calls)]
        words += ["--seed", str(given.seed), "--threads", str(given.threads)]
        words += ["--control", str(given.control)]
        sys.exit(subprocess.run(words, env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
