"""What the lab half of `mrc bench live` tells hosts, makes of figures, prints, and measures."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from openmrc.bench.lab import measure, plain
from openmrc.bench.lab.measure import CUBIC, MPTCP, OURS, PLANES, TCP, Found, figures, ratios
from openmrc.bench.lab.rounds import Delivered, Times
from openmrc.bench.lab.words import lab_lines
from openmrc.jit import interpreted
from openmrc.live.lab.topology import topology
from openmrc.run.lab.spec import lab_spec
from openmrc.scenario.scenario import make_scenario
from tests.live.lab.conftest import lacks

SPEC = lab_spec(make_scenario(measure.tables()))
TIMES = Times(1.0, 2.0, 3.0)


def found() -> dict[str, Found]:
    """Three rounds by hand."""
    one = [Delivered(bps, True, ms) for bps, ms in ((370e6, 40.0), (380e6, 20.0), (375e6, None))]
    kernels = [Delivered(bps, True, ms) for bps, ms in ((350e6, 300.0), (360e6, 500.0))]
    return {
        OURS: Found(one, {"pmtu_bytes": 4096}),
        TCP: Found([Delivered(95e6)], {"congestion": "bbr"}),
        CUBIC: Found(skipped="tcp, cubic: No such file or directory"),
        MPTCP: Found(kernels, {"subflows": 4}, short=1),
    }


def test_one_host_wraps_and_the_other_unwraps() -> None:
    """By the plan of docs/wire.md: T0s are 4000 + 2 * plane + index, T1s 2000 + 2 * plane + up."""
    shape = topology(SPEC.fabric, SPEC.settings)
    assert plain.carrier(shape, 0, 0, 3) == "2001:db8:4000:2000:4001:1001:d::"
    assert plain.carrier(shape, 2, 3, 0) == "2001:db8:4005:2004:4004:1000:d::"
    said = plain.lines(shape, 0, 3)
    assert len(said) == 4 * PLANES + 1
    assert said[4:8] == [
        "neigh add fe80::1 lladdr 02:ff:00:00:00:02 dev e1 nud permanent",
        "route add 2001:db8:4002::/48 via fe80::1 dev e1",
        "addr add fd00:0:1:0::1/128 dev e1 nodad",
        "route add fd00:0:1:3::1/128 encap seg6 mode encap.red segs"
        " 2001:db8:4002:2002:4003:1001:d:: dev e1 src fd00:0:1:0::1",
    ]
    unwrap = "encap seg6local action End.DT6 table 255 dev e0 table local"
    assert said[-1] == f"route add 2001:db8:1000:d::/64 {unwrap}"


def test_who_listens_names_the_addresses_of_the_other_planes() -> None:
    shape = topology(SPEC.fabric, SPEC.settings)
    assert plain.mptcp_lines(shape, 0, listens=False) == [
        "mptcp endpoint flush",
        "mptcp limits set subflow 4 add_addr_accepted 4",
    ]
    assert plain.mptcp_lines(shape, 3, listens=True)[2:] == [
        f"mptcp endpoint add fd00:0:{plane}:3::1 dev e{plane} signal" for plane in (1, 2, 3)
    ]


def test_a_kernel_without_mptcp_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plain, "MPTCP_ENABLED", tmp_path / "enabled")
    lab: Any = SimpleNamespace(
        topology=topology(SPEC.fabric, SPEC.settings),
        namespaces=SimpleNamespace(inside=lambda host: nullcontext()),
    )
    assert "no MPTCP; boot one with CONFIG_MPTCP" in plain.mptcp_refusal(lab, measure.NICS)


def test_figures_are_medians_and_ratios_of_them() -> None:
    result = figures(found(), SPEC, 3, TIMES)
    assert (result["mtu_bytes"], result["wire_bytes"]) == (4228, 4262)
    assert result["ceiling_mbps"] == round(400 * 4096 / 4262, 1) == 384.4
    assert result[OURS]["goodput_mbps"] == 375.0
    assert result[OURS]["outage_ms"] == 40.0  # None is longer than all
    assert result[OURS]["outages_ms"] == [40.0, 20.0, None]
    assert "outage_ms" not in result[TCP]
    assert result[CUBIC] == {"skipped": "tcp, cubic: No such file or directory"}
    assert (result[MPTCP]["rounds"], result[MPTCP]["outage_ms"]) == (2, 500.0)
    assert result["ratios"] == {
        "ceiling": round(375 / 384.4, 3),
        TCP: round(375 / 95, 3),
        MPTCP: round(375 / 355, 3),
        "outage": 12.5,
    }


def test_an_outage_is_known_to_five_milliseconds() -> None:
    result = figures(found(), SPEC, 3, TIMES)
    result[OURS]["outage_ms"] = 0.0
    assert ratios(result)["outage"] == 100.0
    result[OURS]["outage_ms"] = None
    assert "outage" not in ratios(result)


def test_mptcp_on_too_few_planes_is_not_measured() -> None:
    rows = found() | {MPTCP: Found([], {"subflows": 2}, short=3)}
    assert figures(rows, SPEC, 3, TIMES)[MPTCP]["skipped"].startswith("never on all planes: ")


def test_the_table_says_what_holds_and_what_was_left_out() -> None:
    result = figures(found(), SPEC, 3, TIMES)
    text = "\n".join(lab_lines(result))
    assert "TCP, one plane, the kernel's default (bbr)" in text
    assert "NOT MEASURED: TCP, one plane, CUBIC: tcp, cubic: No such file or directory" in text
    assert "bar 0.9, holds" in text
    assert "MPTCP's outage is 12.5 times openmrc's: bar 10, holds" in text
    result["ratios"] |= {"ceiling": 0.8, "outage": 9.9}
    assert [line.endswith("missed") for line in lab_lines(result)[-2:]] == [True, True]
    result[OURS]["outage_ms"] = None
    assert "> 3000 ms" in lab_lines(result)[2]
    [line] = lab_lines({"skipped": "no namespaces; type: ..."})
    assert line.startswith("NOT MEASURED: goodput and outages in a lab: no namespaces; type")


@pytest.mark.skipif(interpreted(), reason="measures compiled code")
def test_a_round_in_a_lab() -> None:
    """Everything for real, for seconds, on slow planes; bounds that a busy machine keeps."""
    if lines := lacks()["lab openmrc"]:
        pytest.skip(f"NOT TESTED: no lab of openmrc switches here: {lines[0]}")
    result = measure.measure_lab(1, Times(0.4, 0.6, 1.5), 40)
    assert 0.3 < result["ratios"]["ceiling"] < 1.02
    assert result[OURS]["pmtu_bytes"] == 4096
    assert len(result[OURS]["outages_ms"]) == 1
    for kind, planes in ((TCP, 1), (CUBIC, 1), (MPTCP, PLANES)):
        row: dict[str, Any] = result[kind]
        if "skipped" in row:
            pytest.skip(f"NOT TESTED: {kind}: {row['skipped']}")
        assert 0.2 * 40 * planes < row["goodput_mbps"] < 1.1 * 40 * planes
    assert result[CUBIC]["congestion"] == "cubic"
    assert result[MPTCP]["subflows"] == PLANES
    assert len(lab_lines(result)) >= 7
