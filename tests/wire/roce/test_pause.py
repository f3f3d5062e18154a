"""Pause frames of classes: their bytes by the standard, and what is none."""

from __future__ import annotations

import random

import numpy as np
import pytest

from openmrc.wire.roce import pause
from openmrc.wire.roce.pause import Pause, PauseError

SOURCE = np.frombuffer(bytes.fromhex("02ff00000007"), np.uint8)


def written(quanta: int, priority: int = 3) -> bytes:
    out = np.full(80, 0xAA, np.uint8)
    assert pause.write(out, SOURCE, priority, quanta) == 60
    assert (out[60:] == 0xAA).all()
    return out[:60].tobytes()


def test_a_frame_byte_by_byte() -> None:
    assert written(0x1234).hex() == (
        "0180c2000001" "02ff00000007" "8808" "0101" "0008"
        "0000" "0000" "0000" "1234" "0000" "0000" "0000" "0000" + "00" * 26
    )  # fmt: skip


def test_what_was_written_is_read() -> None:
    assert pause.read(written(65_535)) == Pause(
        "02:ff:00:00:00:07", "01:80:c2:00:00:01", 0b1000, {3: 65_535}
    )
    assert pause.line(pause.read(written(65_535))) == (
        "02:ff:00:00:00:07 -> 01:80:c2:00:00:01  PFC  class 3 holds for 65535 quanta"
    )
    assert pause.line(pause.read(written(0, 7))).endswith("PFC  class 7 goes on")


def test_other_peoples_frames_enable_several_classes_or_none() -> None:
    data = bytearray(written(9))
    data[17], data[18:20] = 0b1001, b"\x00\x05"
    found = pause.read(bytes(data))
    assert found.quanta == {0: 5, 3: 9}
    assert pause.line(found).endswith("class 0 holds for 5 quanta, class 3 holds for 9 quanta")
    data[17] = 0
    assert pause.line(pause.read(bytes(data))).endswith("PFC  no class")


def test_without_room_nothing_is_written() -> None:
    out = np.zeros(59, np.uint8)
    assert pause.write(out, SOURCE, 3, 1) == -1
    assert not out.any()


@pytest.mark.parametrize(
    ("change", "at", "reason"),
    [
        (lambda d: d[:12] + b"\x86\xdd" + d[14:], 12, "not MAC control"),
        (lambda d: d[:12], 12, "not MAC control"),
        (lambda d: d[:20], 14, "ends within a header"),
        (lambda d: d[:14] + b"\x00\x01" + d[16:], 14, "not a PFC frame"),  # 802.3x: all traffic
        (lambda d: d[:16] + b"\x01" + d[17:], 16, "class above 7"),
    ],
)
def test_what_is_none_is_refused(change, at: int, reason: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PauseError, match=reason) as caught:
        pause.read(change(written(1)))
    assert caught.value.offset == at


def test_no_bytes_make_the_reader_fail() -> None:
    dice = random.Random(3)
    read = refused = 0
    for _ in range(3000):
        data = bytearray(written(dice.randrange(65_536)))
        for _ in range(dice.randrange(4)):
            data[dice.randrange(12, 40)] = dice.randrange(256)
        try:
            pause.line(pause.read(bytes(data[: dice.randrange(61)])))
            read += 1
        except PauseError:
            refused += 1
    assert read > 300
    assert refused > 300
