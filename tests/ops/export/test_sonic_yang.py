"""SONiC's own YANG models, written by strangers, take what is exported: `sonic-srv6.yang` and more.

They are not kept here. To run this, with `yanglint` (Debian: libyang2-tools):

    git clone --depth 1 https://github.com/sonic-net/sonic-buildimage
    OPENMRC_SONIC_YANG=sonic-buildimage/src/sonic-yang-models/yang-models pytest \\
        tests/ops/export/test_sonic_yang.py

CONFIG_DB has its own way to write what YANG calls a list, "KEY|KEY"; `as_yang` is what SONiC's
`sonic-yang-mgmt` does about it, for the tables of an export.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.ops.export.conftest import Export

# By table: its module, the keys of its list; with a third, the keys of a list within that one.
MODULES: dict[str, tuple[str, ...]] = {
    "INTERFACE": ("sonic-interface", "name"),
    "SRV6_MY_LOCATORS": ("sonic-srv6", "locator_name"),
    "SRV6_MY_SIDS": ("sonic-srv6", "locator ip_prefix"),
    "STATIC_ROUTE": ("sonic-static-route", "vrf_name prefix"),
    "DSCP_TO_TC_MAP": ("sonic-dscp-tc-map", "name", "dscp tc"),
    "TC_TO_QUEUE_MAP": ("sonic-tc-queue-map", "name", "tc qindex"),
    "TC_TO_DSCP_MAP": ("sonic-tc-dscp-map", "name", "tc dscp"),
    "SCHEDULER": ("sonic-scheduler", "name"),
    "BUFFER_POOL": ("sonic-buffer-pool", "name"),
    "BUFFER_PROFILE": ("sonic-buffer-profile", "name"),
    "BUFFER_QUEUE": ("sonic-buffer-queue", "port qindex"),
    "WRED_PROFILE": ("sonic-wred-profile", "name"),
    "QUEUE": ("sonic-queue", "ifname qindex"),
    "PORT_QOS_MAP": ("sonic-port-qos-map", "ifname"),
    "ACL_TABLE_TYPE": ("sonic-acl", "ACL_TABLE_TYPE_NAME"),
    "ACL_TABLE": ("sonic-acl", "ACL_TABLE_NAME"),
    "ACL_RULE": ("sonic-acl", "ACL_TABLE_NAME RULE_NAME"),
}


NUMBERS = ("tc", "tc_value", "queue_index", "PRIORITY", "DSCP")


def as_yang(config: dict[str, Any]) -> dict[str, Any]:
    """CONFIG_DB as RFC 7951 writes it, with the ports that a platform would have."""
    found: dict[str, Any] = {
        "sonic-device_metadata": {"DEVICE_METADATA": config["DEVICE_METADATA"]},
        "sonic-port": {"PORT": {"PORT_LIST": _ports(config)}},
    }
    for table, rows in config.items():
        if table == "DEVICE_METADATA":
            continue
        if table == "SWITCH_TRIMMING":
            found["sonic-trimming"] = {table: {"GLOBAL": _leaves(rows["GLOBAL"])}}
            continue
        module, keys, *inner = MODULES[table]
        lists: dict[str, list[Any]] = {}
        for key, row in rows.items():
            parts, names = key.split("|"), keys.split()
            name = f"{table}_LIST"
            if table == "INTERFACE" and len(parts) == 2:
                name, names = "INTERFACE_IPPREFIX_LIST", ["name", "ip-prefix"]
            assert len(parts) == len(names), key
            of_row = dict(zip(names, parts, strict=True))
            if inner:
                one, other = inner[0].split()
                pairs = [_leaves({one: a, other: b}) for a, b in row.items()]
                of_row |= {table: pairs}
            else:
                of_row |= _leaves(row)
            lists.setdefault(name, []).append(of_row)
        found.setdefault(module, {})[table] = lists
    return {f"{module}:{module}": content for module, content in found.items()}


def _ports(config: dict[str, Any]) -> list[dict[str, Any]]:
    names = [name for name in config["INTERFACE"] if "|" not in name]
    return [{"name": name, "lanes": str(i), "speed": 100_000} for i, name in enumerate(names)]


def _leaves(row: dict[str, Any]) -> dict[str, Any]:
    """Numbers as the models have them: 64 bits, DSCPs and queues of maps are text there."""
    found: dict[str, Any] = {}
    size_of_trims = "size" if "dscp_value" in row else None  # that of a buffer has 64 bits
    for key, value in row.items():
        if value in ("true", "false") and key.startswith("wred_"):
            found[key] = value == "true"
        elif key.endswith("_len") or key in (*NUMBERS, size_of_trims):
            found[key] = int(value)
        else:
            found[key] = value
    return found


@pytest.fixture(scope="module")
def models() -> Path:
    """The directory of SONiC's models; skips, loudly, without it or yanglint."""
    place = os.environ.get("OPENMRC_SONIC_YANG")
    if place is None:
        pytest.skip("NOT TESTED: sonic-srv6.yang: OPENMRC_SONIC_YANG names no directory of models")
    if shutil.which("yanglint") is None:
        pytest.skip("NOT TESTED: sonic-srv6.yang: no yanglint; apt install libyang2-tools")
    return Path(place)


def lint(models: Path, data: dict[str, Any], place: Path) -> str:
    """What `yanglint` says of data, with every model that the data is of: "" if all is well."""
    for template in (models.parent / "yang-templates").glob("*.yang.j2"):
        (place / template.name.removesuffix(".j2")).write_text(rendered(template.read_text()))
    (place / "data.json").write_text(json.dumps(data))
    names = [f"{name.partition(':')[0]}.yang" for name in data]
    modules = [(place if (place / name).exists() else models) / name for name in names]
    done = subprocess.run(
        ["yanglint", "-p", models, "-p", place, "-t", "config", *modules, place / "data.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Parsing schema" not in done.stderr, done.stderr
    return done.stderr if done.returncode else ""


def rendered(template: str) -> str:
    """What SONiC's build makes of a template for Python: `{% if yang_model_type == "cvl" %}`."""
    for_python = re.sub(
        r"{% if yang_model_type == \"cvl\" %}.*?(?:{% else %}(.*?))?{% endif %}",
        lambda found: found[1] or "",
        template,
        flags=re.S,
    )
    assert "{%" not in for_python
    return for_python


def of(file: Path) -> dict[str, Any]:
    return as_yang(json.loads(file.read_text()))


@pytest.mark.parametrize("fabric", ["planes", "three tiers", "links"])
def test_sonics_models_take_every_switch(
    fabric: str, models: Path, exported: Export, tmp_path: Path
) -> None:
    files = sorted(exported("sonic", fabric).glob("p*.json"))
    assert files
    assert {file.stem: lint(models, of(file), tmp_path) for file in files} == {
        file.stem: "" for file in files
    }


WRONG = {
    "a behaviour": (
        "sonic-srv6",
        "SRV6_MY_SIDS",
        {"action": "uX"},
        'Invalid enumeration value "uX"',
    ),
    "a locator": ("sonic-srv6", "SRV6_MY_SIDS", {"locator": "OTHER"}, "OTHER"),
    "a prefix": ("sonic-static-route", "STATIC_ROUTE", {"prefix": "2001:db8::/129"}, "/129"),
    "a length": ("sonic-srv6", "SRV6_MY_LOCATORS", {"node_len": 97}, "Must condition"),
    "a port": ("sonic-port-qos-map", "PORT_QOS_MAP", {"ifname": "Ethernet99"}, "Ethernet99"),
    "a scheduler": ("sonic-queue", "QUEUE", {"scheduler": "absent"}, "absent"),
    "a profile": ("sonic-buffer-queue", "BUFFER_QUEUE", {"profile": "absent"}, "absent"),
    "an action": ("sonic-acl", "ACL_RULE", {"PACKET_ACTION": "SPARE"}, "SPARE"),
    "a table": ("sonic-acl", "ACL_TABLE", {"type": "absent"}, "absent"),
    "a key": ("sonic-srv6", "SRV6_MY_SIDS", {"usid": "1"}, '"usid"'),
}


@pytest.mark.parametrize("what", WRONG)
def test_sonics_models_refuse_what_is_wrong(
    what: str, models: Path, exported: Export, tmp_path: Path
) -> None:
    module, table, change, words = WRONG[what]
    data = of(exported("sonic", "planes") / "p0-t0-0.json")
    data[f"{module}:{module}"][table][f"{table}_LIST"][0].update(change)
    assert words in lint(models, data, tmp_path)
