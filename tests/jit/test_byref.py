"""State by reference: what cannot be passed is an error, never a crash."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from openmrc.engine import setup, state
from openmrc.engine.parameters import Parameters
from openmrc.jit import compiled, interpreted, records
from openmrc.jit.byref import by_reference
from tests.jit import guarded

compiled_only = pytest.mark.skipif(interpreted(), reason="plain Python passes references itself")


def small_state() -> state.State:
    rooms = setup.Rooms(1, 1, 1, 1, 1, 1, 1)
    return setup.new_state(Parameters(), rooms, nics=1, peers=1, regions=1)


RECORD = np.dtype([("psn", "i8"), ("ev", "i4")])


@by_reference
class Three(NamedTuple):
    """State of a test."""

    qp: Any
    word: Any
    row: Any


@compiled
def _sum(three: Three, i: int) -> int:
    qp = three.qp[i]
    return int(qp.psn) + int(qp.ev) + int(three.word[i]) + int(three.row[i, 1])


def three(**other: Any) -> Three:
    """Four records, words and rows of two; the sum at `i` is 100 + 20 + 3 + (2 i + 1)."""
    state = Three(records(4, RECORD), np.full(4, 3), np.arange(8).reshape(4, 2))
    state.qp.psn[:] = 100
    state.qp.ev[:] = 20
    return state._replace(**other)


@compiled
def _every_kind_of_index(three: Three, i: int) -> int:
    """As the engine and the worlds index; returns the sum of what it read."""
    place = np.uint32(i)
    total = three.word[i] + three.word[place] + three.word[1:3][-1] + three.row[i][-1]
    total += three.row[i, 1] + three.row[place, 0] + three.row[i, :][1] + len(three.word)
    total += three.row.shape[0] * three.row.shape[1] + three.qp.psn[-1] + three.qp["ev"][i]
    three.word[i] += 1
    three.word[place] = three.word[i] * 2
    three.row[i, 1] = three.word[0]
    three.row[i + 1][0] = 7
    three.word[2:] = 5
    three.qp[i + 1] = three.qp[i]
    three.qp[i].ev = 9
    for word in three.word:
        total += word
    return int(total)


@compiled
def _of_one(three: Three, i: int) -> int:
    return int(three.word[i])


def readonly(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


def test_fields_are_read_where_they_lie() -> None:
    assert [_sum(three(), i) for i in range(4)] == [124, 126, 128, 130]
    assert _sum(three(word=np.array([9])), 0) == 130  # the length is no part of the type
    assert _sum(three(qp=np.zeros(4, RECORD).view(np.recarray)), 0) == 4


def test_fields_are_indexed_as_arrays_are() -> None:
    numbers, arrays = three(), three()
    plain = getattr(_every_kind_of_index, "py_func", _every_kind_of_index)
    assert _every_kind_of_index(numbers, 1) == plain(arrays, 1)
    for number, array in zip(numbers, arrays, strict=True):
        assert number.tobytes() == array.tobytes()


@compiled_only
def test_no_index_is_tested_for_its_sign() -> None:
    fresh = numba.njit(_of_one.py_func)  # what comes from the cache cannot be inspected
    fresh(three(), 0)
    (code,) = fresh.inspect_llvm().values()
    body = code.split("define ", 2)[1]
    assert "load i64" in body
    assert "icmp slt" not in body
    assert "select" not in body


def test_a_negative_index_is_found_in_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled it would be memory in front of the array; plain runs of the tests are guarded so."""
    monkeypatch.setattr(guarded, "tuples", {Three})
    sums = getattr(_sum, "py_func", _sum)
    assert guarded.called_guarded(sums)(three(), 1) == sums(three(), 1)
    with pytest.raises(IndexError, match="index -1 is out of bounds"):
        guarded.called_guarded(sums)(three(), -1)
    state = guarded.guarded(three())
    for name, index in (("word", -1), ("word", np.int32(-2)), ("row", (1, -1)), ("qp", -1)):
        with pytest.raises(IndexError, match="out of bounds"):
            getattr(state, name)[index]
        with pytest.raises(IndexError, match="out of bounds"):
            getattr(state, name)[index] = getattr(state, name)[0]
    assert state.qp.psn[-1] == 100  # the field of all records is an ordinary array


@compiled_only
@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"word": np.zeros(4, np.int32)}, "word must be array(int64, 1d, C), not array(int32, 1d"),
        ({"word": np.zeros(4)}, "word must be array(int64, 1d, C), not array(float64, 1d, C)"),
        ({"word": np.zeros(4, ">i8")}, "word must be in this machine's byte order, not >i8"),
        ({"word": np.zeros((4, 2), np.int64)}, "word must be array(int64, 1d, C), not array(int64"),
        ({"row": np.zeros(8, np.int64)}, "row must be array(int64, 2d, C), not array(int64, 1d, C"),
        ({"row": np.zeros((4, 2), np.int64, "F")}, "row must be C-contiguous, of one or two dim"),
        (
            {"word": np.zeros(8, np.int64)[::2]},
            "word must be C-contiguous, of one or two dim",
        ),
        ({"word": np.zeros((2, 2, 2), np.int64)}, "word must be C-contiguous, of one or two dim"),
        ({"word": three().row, "row": three().word}, "word must be array(int64, 1d, C), not array"),
        ({"qp": three().word}, "qp must be unaligned array(Record(psn[type=int64;offset=0],ev"),
        ({"qp": records(4, np.dtype([("ev", "i4"), ("psn", "i8")]))}, "qp must be unaligned array"),
        ({"word": readonly(np.zeros(4, np.int64))}, "not readonly array(int64, 1d, C)"),
        ({"word": [1, 2, 3, 4]}, "word must be an array, not list"),
        ({"word": None}, "word must be an array, not NoneType"),
    ],
)
def test_what_is_not_as_in_the_first_is_refused(other: dict[str, Any], words: str) -> None:
    """Else the compiled code would read and write other memory than it means."""
    assert _sum(three(), 1) == 126
    for _ in range(2):  # what was refused is not known the next time
        with pytest.raises(TypeError) as refused:
            _sum(three(**other), 1)
        assert str(refused.value).startswith("Three.")
        assert words in str(refused.value)
    assert _sum(three(), 1) == 126


@compiled_only
def test_a_first_one_that_is_wrong_finds_no_code_on_the_disk() -> None:
    """Another process may have compiled the same function for other arrays."""
    from numba import typeof

    def of(word: Any) -> Any:
        @by_reference
        class Same(NamedTuple):
            word: Any

        return typeof(Same(word))

    assert of(np.zeros(4, np.int64)) == of(np.zeros(9, np.int64))
    assert of(np.zeros(4, np.int64)) != of(np.zeros(4, np.int32))


@compiled_only
def test_an_error_on_the_way_in_is_raised() -> None:
    """Whatever is raised while the table of arrays is made arrives, KeyboardInterrupt as well."""

    class Interrupted(np.ndarray[Any, Any]):
        @property
        def ctypes(self) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _sum(three(word=np.zeros(4, np.int64).view(Interrupted)), 0)
    crooked = small_state()._replace(order=np.zeros(8, np.int16)[::2])
    with pytest.raises(TypeError, match=r"State\.order must be C-contiguous"):
        setup.open_qp(crooked, 0)


@compiled_only
def test_classes_of_one_name_are_different_types() -> None:
    """Both worlds call their network Net; a process may hold both."""
    from numba import typeof

    from openmrc.fabric.clos import multiplane
    from openmrc.fabric.queues import Queues
    from openmrc.live.switch.switches import Switches
    from openmrc.sim.mrc.transport import Transport
    from openmrc.sim.world import World
    from openmrc.workload.patterns import stream

    fabric = multiplane(2, 1, 10**9, 1, 1, 0, 0)
    simulated = typeof(World(fabric, stream(0, 1, 1000), Transport()).net)
    with Switches(fabric, Queues(), [-1, -1]) as switches:
        live = typeof(switches.net)
    assert simulated != live
    assert simulated.fields.keys() != live.fields.keys()
