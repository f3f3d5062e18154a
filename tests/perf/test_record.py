"""What `mrc perf --out` writes is what `mrc why` reads."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from openmrc.cli import main
from openmrc.errors import InputError
from openmrc.ops.records import read
from openmrc.ops.why import why
from openmrc.perf import record
from openmrc.verbs import Status
from tests.live.two import PATIENCE_S, connected

MB = 1 << 20
FABRIC = {"nics": 2, "planes": 2, "t0_down": 1, "t0_up": 2, "port_rate": "10Gbps"}


def test_a_measurement_is_a_run_of_which_why_can_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "host.json"
    ports = [{"interface": "lo"}] * 2
    file.write_text(json.dumps({"fabric": FABRIC, "nic": 0, "mode": "udp", "ports": ports}))
    monkeypatch.setenv("OPENMRC_HOST", str(file))
    with connected(planes=2, account=record.ROOM) as (a, b):
        end: Any = SimpleNamespace(device=a.device, qps=[a.qp], peers=[b.qp.attributes])
        sink = b.device.reg_mr(bytearray(MB))
        source = a.device.reg_mr(np.ones(MB, np.uint8))
        with record.Recording(end, tmp_path / "out"):
            a.qp.post_write(1, source, remote_addr=sink.addr, rkey=sink.rkey)
            assert a.cq.wait(timeout=PATIENCE_S)[0].status == Status.SUCCESS
        sent = a.qp.counters()
    (one,) = read(tmp_path / "out")
    assert one.flows.select("src", "dst", "bytes").rows() == [(0, 1, sent["tx_bytes"])]
    assert one.summary["packets"]["data"] == MB // a.device.pmtu
    assert one.counts is not None
    on_way = one.counts.group_by("port").agg(pl.col("packets").sum())
    own = {one.fabric.nic_port(0, plane) for plane in range(2)}
    assert on_way.filter(pl.col("port").is_in(own))["packets"].sum() == sent["tx_packets"]
    answer = why(one)
    assert (answer.knows, answer.findings) == (True, ())


def test_without_a_fabric_there_is_no_place_to_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end: Any = SimpleNamespace(device=SimpleNamespace(fabric=None))
    with pytest.raises(InputError, match="--out: an ordinary network has no places to name"):
        record.Recording(end, tmp_path)
    for words in (["--overlay", "2"], ["198.18.0.1", "--planes", "127.0.0.1"]):
        assert main(["perf", "write_bw", *words, "--out", str(tmp_path / "x")]) == 2
        assert "--out: without a fabric there are no places to name" in capsys.readouterr().err
    assert main(["perf", "write_bw", "--out", str(tmp_path / "x")]) == 2
    assert "--out without HOST" in capsys.readouterr().err
