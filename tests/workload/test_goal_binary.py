"""Binary GOAL schedules: the same workloads as their text, and damaged ones refused."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.traffic.traffic import Traffic
from openmrc.workload import load_goal
from tests.workload.releases import edges

OPERATION = re.compile(
    r"(\w+): (?:(calc) (\d+) cpu (\d+)|(send|recv) (\d+)b (?:to|from) (\d+) tag (\d+) nic (\d+))"
)
TEXT = """\
num_ranks 2
rank 0 {
a: calc 1000 cpu 1
b: send 4096b to 1 tag 5 nic 0
c: recv 7b from 1 tag 0 nic 0
d: calc 30 cpu 255
b requires a
d requires c
d requires a
c irequires b
}
rank 1 {
a: recv 4096b from 0 tag 5 nic 0
b: send 7b to 0 tag 0 nic 0
b requires a
}
"""


def written(text: str, magic: int = 4223) -> bytes:
    """What LogGOPSim's txt2bin makes of a text whose operations have labels and all their words."""
    parts = []
    for block in text.split("rank ")[1:]:
        if "{" not in block:
            continue
        lines = block.splitlines()
        operations = [found for line in lines if (found := OPERATION.fullmatch(line))]
        number = {found[1]: i for i, found in enumerate(operations)}
        ends: list[list[int]] = [[] for _ in operations]
        begins: list[list[int]] = [[] for _ in operations]
        for line in lines:
            if wait := re.fullmatch(r"(\w+) (i?)requires (\w+)", line):
                (begins if wait[2] else ends)[number[wait[3]]].append(number[wait[1]])
        waits = [sum(each.count(i) for each in (*ends, *begins)) for i in range(len(operations))]
        roots = [i for i, n in enumerate(waits) if not n]
        part = struct.pack(f"<II{len(roots)}I", len(operations), len(roots), *roots)
        listed: list[int] = []
        for i, (_, _, ns, cpu, word, size, peer, tag, nic) in enumerate(
            found.groups() for found in operations
        ):
            kind = 3 if word is None else 1 if word == "send" else 2
            part += struct.pack(
                "<IbIQIBB", waits[i], kind, int(peer or 0), int(ns or size), int(tag or 0),
                int(cpu or 0), int(nic or 0),
            )  # fmt: skip
            for those in (ends[i], begins[i]):
                part += struct.pack("<II", len(those), len(listed))
                listed += those
        parts.append(part + struct.pack(f"<{len(listed)}I", *listed))
    at = 4 + 2 + 16 * len(parts)
    table = b""
    for part in parts:
        table += struct.pack("<QQ", at, at + len(part))
        at += len(part)
    return struct.pack("<QIBB", magic, len(parts), 255, 0) + table + b"".join(parts)


WRITTEN = written(TEXT)


def load(tmp_path: Path, data: bytes) -> Traffic:
    path = tmp_path / "x.bin"
    path.write_bytes(data)
    return load_goal(path, 4)


def refusal(tmp_path: Path, data: bytes) -> str:
    with pytest.raises(InputError) as error:
        load(tmp_path, data)
    return str(error.value).replace(f"{tmp_path}/", "")


def test_a_binary_schedule_is_what_its_text_is(tmp_path: Path) -> None:
    found, said = load(tmp_path, WRITTEN), load(tmp_path, TEXT.encode())
    assert edges(found) == edges(said)
    for column in ("msg_src", "msg_dst", "msg_bytes", "msg_qp", "calc_ps", "calc_core"):
        assert getattr(found, column).tolist() == getattr(said, column).tolist(), column
    assert found.msg_bytes.tolist() == [4096, 7]
    assert found.calc_ps[found.calc_ps > 0].tolist() == [1_000_000, 30_000]


def test_what_is_wrong_is_refused_with_its_operation(tmp_path: Path) -> None:
    assert refusal(tmp_path, written(TEXT, magic=2342)) == (
        "x.bin: LogGOPSim --save-mem has used this schedule up; make it anew"
    )
    assert refusal(tmp_path, written(TEXT.replace("to 1", "to 9"))) == (
        "x.bin: rank 0, operation 1: rank 9; 0 to 1 are accepted"
    )
    assert refusal(tmp_path, written(TEXT.replace("from 0 tag 5", "from 4294967295 tag 5"))) == (
        "x.bin: rank 1, operation 0: recv from any rank (-1) is not supported: which message it"
        " gets would depend on the run; name it"
    )
    assert refusal(tmp_path, written(TEXT.replace("7b to 0", "8b to 0"))).startswith(
        "x.bin: rank 0, operation 2: receives 7 B of the 8 B sent at x.bin: rank 1, operation 1;"
    )


def test_records_of_another_size_are_another_programs(tmp_path: Path) -> None:
    """LogGOPSim2's have the same number at the beginning, and 104 bytes."""
    part = struct.pack("<III", 1, 1, 0) + struct.pack("<Iii", 0, 1, 1).ljust(104, b"\0")
    data = struct.pack("<QIBBQQ", 4223, 1, 0, 0, 22, 22 + len(part)) + part
    assert refusal(tmp_path, data) == (
        "x.bin: rank 0: 1 operation and what waits do not fill its part: the file is"
        " damaged, or another program's (LogGOPSim2 has records of its own); write it anew with"
        " LogGOPSim's txt2bin"
    )


def test_a_schedule_that_was_cut_is_refused_at_every_byte(tmp_path: Path) -> None:
    for size in range(8, len(WRITTEN)):
        assert re.search(rf"ends at byte {size}, within", refusal(tmp_path, WRITTEN[:size])), size


@given(
    st.lists(
        st.tuples(st.integers(8, len(WRITTEN) - 1), st.integers(0, 255)), min_size=1, max_size=4
    )
)
def test_a_damaged_schedule_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    path, data = tmp_path_factory.mktemp("goal") / "x.bin", bytearray(WRITTEN)
    for at, value in changes:
        data[at] = value
    path.write_bytes(data)
    try:
        load_goal(path, 4)
    except InputError as error:
        assert str(error).startswith(str(path))  # noqa: PT017
