"""Traffic matrices as CSV and .npy: each cell is a message, and what is no matrix is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmrc.errors import InputError, Remark
from openmrc.scenario.scenario import make_scenario
from openmrc.traffic.traffic import Traffic
from openmrc.workload.matrix import load_matrix

MATRIX = [[0, 5, 0], [7, 0, 1000], [0, 0, 0]]
SENT = [(0, 1, 5), (1, 0, 7), (1, 2, 1000)]


def sent(traffic: Traffic) -> list[tuple[int, ...]]:
    columns = (traffic.msg_src, traffic.msg_dst, traffic.msg_bytes)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def load(tmp_path: Path, text: str, n_nics: int = 4) -> Traffic:
    (tmp_path / "x.csv").write_text(text)
    return load_matrix(tmp_path / "x.csv", n_nics)


@pytest.mark.parametrize(
    "text",
    [
        "0,5,0\n7,0,1000\n0,0,0\n",
        "# bytes\n0; 5; 0\n7; 0; 1000\n\n0; 0; 0\n",
        "0 5 0\n7 0 1000\n0 0 0",
        ",a,b,c\na,0,5,0\nb,7,0,1000\nc,0,0,0\n",
        "a\tb\tc\n0\t5.0\t0\n7\t0\t1000\n0\t0\t0\n",
        "\ufeff0,5,0\n7,0,1000\n0,0,0\n",
    ],
    ids=["commas", "semicolons", "blanks", "names", "names above, tabs", "byte order mark"],
)
def test_a_cell_is_a_message_from_its_row_to_its_column(tmp_path: Path, text: str) -> None:
    assert sent(load(tmp_path, text)) == SENT


@pytest.mark.parametrize("dtype", ["i8", "u4", "f8"])
def test_an_array_of_numpy_is_a_matrix(tmp_path: Path, dtype: str) -> None:
    np.save(tmp_path / "x.npy", np.array(MATRIX, dtype))
    assert sent(load_matrix(tmp_path / "x.npy", 3)) == SENT


def test_what_a_rank_sends_itself_is_left_out_with_a_remark(tmp_path: Path) -> None:
    with pytest.warns(Remark, match=r"x\.csv: 9 B from ranks to themselves stay in their hosts"):
        assert sent(load(tmp_path, "9,5\n0,0")) == [(0, 1, 5)]


def test_ranks_are_placed(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("0,5\n0,0")
    tables: dict[str, Any] = {"workload": {"kind": "matrix", "file": "x.csv", "order": "random"}}
    _, traffic, _ = make_scenario(
        {**tables, "fabric": {"nics": 64}, "seed": 5}, base=tmp_path
    ).build()
    mixed = np.random.default_rng(5).permutation(64)
    assert sent(traffic) == [(mixed[0], mixed[1], 5)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.csv: nothing in it; name a matrix of bytes"),
        ("a,b\n", "x.csv: nothing in it; name a matrix of bytes"),
        ("0,1\n2", "x.csv:2: 1 number in a matrix of 2 rows; a row and a column for each rank"),
        ("0,1,2\n0,0,0", "x.csv:1: 3 numbers in a matrix of 2 rows; a row and a column for each"),
        ("0,-1\n0,0", "x.csv:1: column 1: '-1'; whole bytes, 0 to"),
        ("0,0.5\n0,0", "x.csv:1: column 1: '0.5'; whole bytes, 0 to"),
        ("0,1e400\n0,0", "x.csv:1: column 1: '1e400'; whole bytes, 0 to"),
        (f"0,{10**30}\n0,0", "x.csv:1: column 1: '1000000000000000000000000000000'; whole bytes"),
        ("0,0\n0,0", "x.csv: workload: no messages, no computations"),
        ("0,1,1,1,1\n" + "0,0,0,0,0\n" * 4, "x.csv: 5 ranks on 4 NICs; take a larger fabric"),
    ],
)
def test_what_is_no_matrix_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        load(tmp_path, text)
    assert str(error.value).replace(f"{tmp_path}/", "").startswith(message)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 3)), "2 x 3; a row and a column for each rank are accepted"),
        (np.zeros((2, 2), complex), "numbers of type complex128; bytes are whole numbers"),
        (np.array([[0, np.nan], [0, 0]]), "row 0, column 1: 'nan'; whole bytes"),
        (np.array([[0, 0], [-1, 0]]), "row 1, column 0: '-1'; whole bytes"),
        (np.array([[None, {}]], object), "no array of NumPy (Object arrays cannot be loaded"),
    ],
)
def test_arrays_that_are_no_matrix_are_refused(tmp_path: Path, array: Any, message: str) -> None:
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(InputError) as error:
        load_matrix(tmp_path / "x.npy", 4)
    assert str(error.value).startswith(f"{tmp_path}/x.npy: {message}")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000, 1000000000), }",
        "{'descr': '<i8', 'fortran_order': False, 'shape': (2,\n",
        "{'descr': '<i8', 'fortran_order': False, 'shape': [2, 2]",
        "((((((((",
        "",
    ],
)
def test_headers_that_are_no_arrays_are_refused(tmp_path: Path, header: str) -> None:
    said = header.encode().ljust(118) + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(said).to_bytes(2, "little") + said + bytes(32)
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(InputError, match=r"x\.npy: no array of NumPy"):
        load_matrix(tmp_path / "x.npy", 4)


def test_a_matrix_of_countless_rows_takes_no_memory(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("0\n" * 10**6)
    with pytest.raises(InputError, match=r"x\.csv:1: 1 number in a matrix of 1000000 rows"):
        load_matrix(tmp_path / "x.csv", 4)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    for name in ("none.csv", "none.npy"):
        with pytest.raises(
            InputError, match=r"\(No such file or directory\); name a matrix of bytes"
        ):
            load_matrix(tmp_path / name, 4)
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(InputError, match="no array of NumPy"):
        load_matrix(tmp_path / "x.npy", 4)
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe0,1")
    with pytest.raises(InputError, match="is not UTF-8 text; name a matrix of bytes"):
        load_matrix(tmp_path / "x.csv", 4)
