"""A host file with something wrong in it is refused in a line that names the file and the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openmrc.errors import InputError
from openmrc.verbs import hostfile

FABRIC = {"nics": 8, "planes": 2, "port_rate": "100Gbps", "t0_down": 4}
PORTS = [{"interface": f"e{plane}", "gateway_mac": "02:ff:00:00:00:00"} for plane in range(2)]
GOOD = {"fabric": FABRIC, "nic": 7, "mode": "native", "ports": PORTS, "secret": "00ff"}


def read(tmp_path: Path, content: Any) -> Any:
    file = tmp_path / "host.json"
    file.write_text(json.dumps(content))
    found = hostfile.read(file)
    hostfile.section(found, file)
    return found


def test_a_good_one_is_read_and_its_secret_and_round_trip_may_be_missing(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD) == GOOD
    for less in ({"secret": None, "base_rtt_us": None}, {"base_rtt_us": 12.5}):
        assert read(tmp_path, GOOD | less)["nic"] == 7


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"nic": "7"}, "nic = '7': the number of a NIC"),
        ({"nic": True}, "nic = True: the number of a NIC"),
        ({"nic": -1}, "nic = -1: the number of a NIC"),
        ({"nic": 8}, "nic = 8: 0 to 7 are accepted"),
        ({"mode": ["udp"]}, "mode = ['udp']: native, udp are accepted"),
        ({"ports": {}}, "ports = {}: a list is accepted"),
        ({"ports": PORTS[:1]}, "1 port on 2 planes; name one a plane"),
        ({"ports": [*PORTS, 3]}, "ports[2]: interface: missing"),
        ({"ports": [{"interface": "e0"}]}, "ports[0]: gateway_mac = None: a MAC address"),
        (
            {"ports": [PORTS[0] | {"gateway_mac": "02:ff"}]},
            "ports[0]: gateway_mac = '02:ff': a MAC",
        ),
        ({"secret": "hush"}, "secret: bytes in hex"),
        ({"secret": "0"}, "secret: bytes in hex"),
        ({"secret": 12}, "secret: bytes in hex"),
        ({"base_rtt_us": "1us"}, "base_rtt_us = '1us': microseconds above 0"),
        ({"fabric": []}, "fabric: "),
        ({"fabric": FABRIC | {"nics": "many"}}, "fabric.nics: "),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, GOOD | wrong)
    assert str(caught.value).startswith(f"{tmp_path / 'host.json'}: {said}")
