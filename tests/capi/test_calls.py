"""The functions as data: all of the API's, and one that answers for each."""

from __future__ import annotations

import inspect
import subprocess
from pathlib import Path

import pytest

from openmrc.capi import stub
from openmrc.capi.calls import (
    ABSENT_CALLS,
    CONTROL,
    CTL_CALLS,
    HOT,
    MRC_CALLS,
    VERBS_CALLS,
)
from openmrc.capi.control.controller import Controller
from openmrc.capi.devices import Verbs
from openmrc.capi.objects import Library

# What a shim over ibverbs asks for by name when it runs; a plug-in of NCCL takes as much.
SHIM = {
    *{f"mrc_{verb}_{what}" for verb in ("create", "destroy") for what in ("context", "cq", "qp")},
    *{f"mrc_{what}" for what in ("query_device", "query_qp", "modify_qp", "get_qpn")},
    *{f"mrc_{what}" for what in ("poll_cq", "post_recv", "post_send")},
}
SHIM_VERBS = {
    *{f"ibv_{what}" for what in ("get_device_list", "get_device_name", "query_gid")},
    *{f"ibv_{what}" for what in ("open_device", "close_device", "create_qp", "create_cq")},
}


def test_the_api_is_whole() -> None:
    names = [call.name for call in MRC_CALLS]
    assert len(names) == len(set(names)) == 27
    assert len({call.name for call in CTL_CALLS}) == 14
    assert len(SHIM) == 13
    assert set(names) >= SHIM
    versions = {call.name: call.version for call in (*VERBS_CALLS, *ABSENT_CALLS)}
    assert {versions[name] for name in SHIM_VERBS} == {"1.1"}


@pytest.mark.parametrize("call", [*MRC_CALLS, *CTL_CALLS, *VERBS_CALLS], ids=lambda call: call.name)
def test_somebody_answers_with_as_many_arguments(call: object) -> None:
    from openmrc.capi.calls import Call

    assert isinstance(call, Call)
    assert len(call.parameters) <= stub.ARGUMENTS
    if call.name in HOT:
        assert call.answers == HOT[call.name]
        return
    owner = Library if call in MRC_CALLS else Controller if call in CTL_CALLS else Verbs
    taken = list(inspect.signature(getattr(owner, call.name)).parameters)
    assert len(taken) - 1 == len(call.parameters)


def test_prototypes_are_those_of_c() -> None:
    by_name = {call.name: call for call in (*MRC_CALLS, *VERBS_CALLS)}
    poll = by_name["mrc_poll_cq"]
    assert poll.prototype == "int mrc_poll_cq(struct mrc_cq *cq, int n, struct ibv_wc *wc)"
    assert by_name["ibv_fork_init"].prototype == "int ibv_fork_init(void)"
    assert by_name["mrc_create_cq"].parameters[4] == ("int", "comp_vector")


def test_versions_follow_each_other() -> None:
    lines = stub.verbs_map().splitlines()
    assert lines[0] == "IBVERBS_1.0 { local: *; };"
    assert lines[1].startswith("IBVERBS_1.1 { global: ibv_get_device_list;")
    assert lines[1].endswith("} IBVERBS_1.0;")
    assert [line.split()[0] for line in lines[2:]] == [f"IBVERBS_1.{n}" for n in (7, 8, 10, 11, 12)]
    every = len(MRC_CALLS) + len(CTL_CALLS) + len(VERBS_CALLS)
    assert len(CONTROL) == every - len(HOT)


def test_the_libraries_have_the_symbols(library: Path) -> None:
    found = subprocess.run(
        ["nm", "-D", "--defined-only", library / "libmrc.so", library / "libibverbs.so.1"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for call in (*MRC_CALLS, *CTL_CALLS):
        assert f" T {call.name}\n" in found
    for call in (*VERBS_CALLS, *ABSENT_CALLS):
        assert f" T {call.name}@@IBVERBS_{call.version}\n" in found
