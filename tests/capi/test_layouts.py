"""Structures of C as data: a compiler sees them as NumPy does, and as others' programs do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from openmrc.capi import build, header, layouts
from openmrc.capi.control import layouts as control
from openmrc.capi.layouts import Struct
from openmrc.errors import InputError

STRUCTS = (*layouts.VERBS_STRUCTS, *layouts.MRC_STRUCTS, *control.STRUCTS)

# What programs that were compiled long ago have in them (64-bit Linux).
BYTES = {
    "ibv_device": 664,
    "ibv_context": 328,
    "ibv_device_attr": 232,
    "ibv_port_attr": 56,
    "ibv_qp_attr": 144,
    "ibv_send_wr": 128,
    "ibv_recv_wr": 32,
    "ibv_sge": 16,
    "ibv_wc": 48,
    "ibv_mr": 48,
    "ibv_qp": 160,
    "ibv_cq": 128,
    "mrc_device_attr": 20,
    "mrc_qp_init_attr": 72,
    "mrc_qp_attr": 176,
    "mrc_qp_hint_attr": 140,
    "mrc_ctl_device_attr": 72,
    "mrc_ctl_ev": 33,
    "mrc_ctl_ev_fmt_profile_attr": 168,
    "mrc_ctl_ev_op_entry": 76,
    "mrc_ctl_ev_profile_attr": 216,
    "mrc_ctl_cc_profile_attr": 152,
    "mrc_ctl_cc_nscc_cfg": 52,
    "mrc_ctl_ev_event": 56,
    "mrc_ctl_ep_req": 88,
    "mrc_ctl_ep_rsp": 12,
}


def test_structures_have_the_sizes_that_programs_know() -> None:
    sizes = {one.name: one.dtype.itemsize for one in STRUCTS}
    assert {name: sizes[name] for name in BYTES} == BYTES


def fields_of(struct: Struct, path: str = "", base: int = 0) -> list[tuple[str, int]]:
    """Every field of a structure, and where NumPy has it."""
    found = []
    for kind, name, *_ in struct.rows:
        assert struct.dtype.fields is not None
        at = base + struct.dtype.fields[name][1]
        found.append((path + name, at))
        if isinstance(kind, Struct):
            found += fields_of(kind, f"{path}{name}.", at)
    return found


def test_a_compiler_lays_the_header_out_as_numpy_does(tmp_path: Path) -> None:
    try:
        compiler = build.compiler()
    except InputError as error:
        pytest.skip(str(error))
    (tmp_path / "infiniband").mkdir()
    (tmp_path / "infiniband/verbs.h").write_text(header.verbs_h())
    (tmp_path / "mrc.h").write_text(header.mrc_h())
    (tmp_path / "mrc_ctl.h").write_text(header.mrc_ctl_h())
    lines = ["#include <stddef.h>", '#include "mrc_ctl.h"']
    for one in STRUCTS:
        kind = f"{one.word} {one.name}"
        lines.append(f"_Static_assert(sizeof({kind}) == {one.dtype.itemsize}, {kind!r});")
        lines += [
            f"_Static_assert(offsetof({kind}, {path}) == {at}, {path!r});"
            for path, at in fields_of(one)
        ]
    lines += [
        f"_Static_assert({name} == {value}, {name!r});"
        for name, value in (layouts.NUMBERS | control.NUMBERS).items()
    ]
    program = tmp_path / "layouts.c"
    program.write_text("\n".join(lines).replace("'", '"') + "\n")
    assert len(lines) > 500
    command = [compiler, "-std=c11", "-Wall", "-Werror", "-fsyntax-only", str(program)]
    command += ["-I", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_wrong_offset_would_be_found() -> None:
    swapped = Struct("pair", (("uint8_t", "small"), ("uint64_t", "large")))
    assert fields_of(swapped) == [("small", 0), ("large", 8)]
    assert swapped.text == "struct pair {\n\tuint8_t small;\n\tuint64_t large;\n}"
