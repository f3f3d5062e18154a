"""`benchmarks/interop_frr.py` without FRR: what it says of one that is missing, or too old."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmrc.errors import InputError
from tests import benchmark

FRR = benchmark.load("interop_frr")


def installed(prefix: Path, says: str) -> Path:
    zebra = prefix / "sbin/zebra"
    zebra.parent.mkdir()
    zebra.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
    zebra.chmod(0o755)
    return prefix


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("zebra version 8.4.4", r"version 8\.4\.4; 10\.5 is needed"),
        ("zebra version 10.4.9", r"version 10\.4\.9; 10\.5 is needed"),
        ("quagga", "does not say its version"),
    ],
)
def test_an_frr_that_cannot_do_it_is_refused(tmp_path: Path, says: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        FRR.checked(installed(tmp_path, says))


def test_no_frr_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"FRR={tmp_path}: .*sbin/zebra does not run"):
        FRR.checked(tmp_path)


def test_an_frr_says_where_it_keeps_its_sockets(tmp_path: Path) -> None:
    says = "zebra version 10.6.1\nconfigured with:\n\t'--prefix=/x' '--localstatedir=/x/var'"
    found = FRR.checked(installed(tmp_path, says))
    assert (found.version, found.state) == ("10.6.1", Path("/x/var"))
    (tmp_path / "bare").mkdir()
    bare = FRR.checked(installed(tmp_path / "bare", "zebra version 10.10.0-dev"))
    assert (bare.version, bare.state) == ("10.10.0-dev", Path("/var"))
