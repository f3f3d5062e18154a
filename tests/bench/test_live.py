"""`mrc bench live` measures both sides, beside loops that really check every frame."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from openmrc.bench import bare
from openmrc.bench import live as benchlive
from openmrc.cli.command import main
from openmrc.errors import OpenMrcError
from openmrc.jit import interpreted
from openmrc.wire import codec, frame
from openmrc.wire.icrc import icrc

pytestmark = pytest.mark.skipif(interpreted(), reason="measures compiled code")


def test_both_sides_are_measured() -> None:
    """No bound on a ratio or a difference: on a machine that does other things, tests among them,
    they say nothing. That the sums are computed and looked at, the tests below see.
    """
    found = benchlive.measure_cpu(planes=2, rounds=3, round_s=0.2)
    assert (found["pmtu_bytes"], found["base_rtt_us"]) == (4096, 1000.0)
    assert found["frame_bytes"] == 4096 + 142  # reference 2.1
    for side in ("sender", "receiver"):
        s = found[side]
        assert min(s["engine_ns"], s["bare_ns"], s["bare_without_icrc_ns"], s["ratio"]) > 0
    assert min(found["packets_per_s"].values()) > 0
    lines = benchlive.cpu_lines(found)
    assert lines[2].startswith("sender")
    assert lines[2].split()[-1] in ("holds", "missed")


def test_the_frame_is_one_of_the_senders() -> None:
    from openmrc.engine.packet import PACKET
    from openmrc.jit import records
    from openmrc.wire.frame import ENVELOPE

    with ExitStack() as stack:
        data = benchlive.Engine(stack, 1).frame()
    p, e = records(1, PACKET)[0], records(1, ENVELOPE)[0]
    assert codec.decode(data, len(data), p, e, 1) == frame.OK
    assert p.payload_len == 4096
    own = icrc(data, benchlive.INNER_IP, len(data) - 4)
    assert int.from_bytes(data[-4:].tobytes(), "little") == own


def test_a_wrong_sum_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        loops = benchlive.Bare(stack, 1, np.ones(4000, np.uint8))
        assert loops.round(0.1, icrc=True).packets_per_s > 0
        assert loops.round(0.1, icrc=False).packets_per_s > 0  # sums of before still stand
        send = bare.send

        def unsummed(to: Any, out: Any, work: Any, *rest: Any) -> None:
            work = work.copy()
            work.check = 0
            send(to, out, work, *rest)

        monkeypatch.setattr(bare, "send", unsummed)
        loops._out.data[:] = 7
        with pytest.raises(OpenMrcError, match="frames came with a wrong iCRC"):
            loops.round(0.1, icrc=True)


def test_json_alone_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, Any] = {"ratio": 1.2}
    monkeypatch.setattr(benchlive, "PARTS", {"cpu": (lambda: found, lambda figures: ["a line"])})
    monkeypatch.setattr(benchlive, "prepare", lambda: None)
    assert main(["bench", "live", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"cpu": found}
    assert main(["bench", "live"]) == 0
    assert capsys.readouterr().out == "a line\n"
