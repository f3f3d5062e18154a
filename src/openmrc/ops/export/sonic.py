"""SONiC: CONFIG_DB as JSON, for `config load` over a platform's own PORT table.

Traffic classes and queues have one number each, the higher the more urgent: data 0, retransmissions
1, control 6 (row 15). A trimmed packet leaves through the control queue. The port determines its
DSCP, by TC_TO_DSCP_MAP for a traffic class that no arriving packet has: a packet trimmed at the
last hop gets a DSCP that says so (row 21).
"""

from __future__ import annotations

import json
from typing import Any

from openmrc.ops.export.switches import Plant, Port, Switch, block, locator, prefix
from openmrc.wire.framing import TRIM_IP_BYTES

SUFFIX = ".json"
DATA, RETRANSMIT, CUT, CONTROL = 0, 1, 5, 6  # traffic classes; all but CUT are queues too
LOCATOR, MAPS, STRICT, POOL = "MAIN", "mrc", "strict", "egress_lossy_pool"
LAST_HOP = "mrc_last_hop"
UNCUT, UNCUT_TYPE = "MRC_NO_TRIM", "MRC_NO_TRIM_TYPE"
LOCATOR_BITS = {"block_len": "32", "node_len": "16", "func_len": "0", "arg_len": "0"}

Tables = dict[str, dict[str, Any]]


def interface(port: int) -> str:
    """Return the name of a switch's port."""
    return f"Ethernet{port}"


def config(plant: Plant, switch: Switch) -> str:
    """Return the configuration that one switch loads at boot."""
    return json.dumps(tables(plant, switch), indent=2) + "\n"


def whole(configs: dict[str, str]) -> str:
    """Return the configurations of several switches as one text."""
    return json.dumps({host: json.loads(text) for host, text in configs.items()}, indent=2) + "\n"


def cannot(plant: Plant) -> list[str]:
    """Return what CONFIG_DB does not configure on these switches."""
    said = [
        "PORT (lanes, speed, FEC) is the platform's: Ethernet0, Ethernet1 ... stand for the ports"
        " of links.csv; rename them where a port has several lanes.",
        f"{plant.needs_mtu} SONiC's PORT|mtu is 9100 where it is not stated.",
        "SIDs are installed on the interface sr0, which not every image has: ip link add sr0 type"
        " dummy && ip link set sr0 up, before the SIDs are loaded (sonic-buildimage 21857).",
        f"Do not delete the blackhole of {block()} while the switch is in use: the SID that it"
        " covers goes with it (sonic-buildimage 23812). Load SRV6_MY_SIDS again afterwards.",
        "Images of 202511 install only the first of several SIDs (sonic-buildimage 24938), "
        + (
            'so sids = "uA" needs another one.'
            if plant.plan.adjacencies
            else "and a switch has one here: add none of your own there."
        ),
        f"{POOL}: its size is the platform's. A queue's static_th is the limit of the scenario,"
        " in bytes on the wire; cells round it up.",
        "Marking: WRED of a port begins at green_min_threshold and marks all at"
        " green_max_threshold; whether on arrival or on departure is the chip's.",
        "Strict priority holds between queues 0, 1 and 6; that these three exist is the chip's.",
    ]
    if plant.trims:
        said += [
            "Trimming takes all of queues 0 and 1 but NO_TRIM"
            f" (DSCP {plant.fabric.dscps.no_trim}, by an ACL): packets of DSCPs that are not MRC's"
            " are cut too.",
            f"SWITCH_TRIMMING size {TRIM_IP_BYTES}: whether Ethernet counts is the chip's; lengths"
            " of IPv6 and UDP are not corrected by every chip.",
            "TC_TO_DSCP_MAP names the class of trimmed packets alone; a chip that remarks"
            " unnamed classes needs them named.",
        ]
    return said


def tables(plant: Plant, switch: Switch) -> Tables:
    """Return the tables of CONFIG_DB of one switch."""
    return {
        "DEVICE_METADATA": {"localhost": {"hostname": switch.host}},
        **_addresses(switch),
        **_forwarding(switch),
        **_classes(plant),
        **_queues(plant, switch),
        **(_uncut(plant, switch) if plant.trims else {}),
    }


def _addresses(switch: Switch) -> Tables:
    interfaces: dict[str, Any] = {}
    for port in switch.ports:
        interfaces[interface(port.number)] = {}
        interfaces[f"{interface(port.number)}|{port.address}/127"] = {}
    return {"INTERFACE": interfaces}


def _forwarding(switch: Switch) -> Tables:
    routes = {
        f"default|{prefix(route.usid)}": {
            "nexthop": switch.ports[route.port].peer,
            "ifname": interface(route.port),
        }
        for route in switch.routes
    }
    bits = {"func_len": "16"} if switch.links else {}
    own = {"prefix": locator(switch.usid), **LOCATOR_BITS, **bits}
    links = {
        f"{LOCATOR}|{prefix(link.usid)}": {
            "action": "uA",
            "decap_dscp_mode": "pipe",
            "interface": interface(link.port),
            "adj": switch.ports[link.port].peer,
        }
        for link in switch.links
    }
    return {
        "SRV6_MY_LOCATORS": {LOCATOR: own},
        "SRV6_MY_SIDS": {
            f"{LOCATOR}|{prefix(switch.usid)}": {"action": "uN", "decap_dscp_mode": "pipe"},
            **links,
        },
        "STATIC_ROUTE": {f"default|{block()}": {"blackhole": "true"}, **routes},
    }


def _classes(plant: Plant) -> Tables:
    """DSCP to traffic class to queue, and those of a trimmed packet."""
    dscps = plant.fabric.dscps
    queued = {dscps.trimmable_retx: RETRANSMIT, dscps.control: CONTROL}
    queued |= dict.fromkeys(dscps.trims, CONTROL)
    classes = {str(dscp): str(queued.get(dscp, DATA)) for dscp in range(64)}
    found: Tables = {
        "DSCP_TO_TC_MAP": {MAPS: classes},
        "TC_TO_QUEUE_MAP": {MAPS: {str(tc): str(_queue(tc)) for tc in range(8)}},
        "SCHEDULER": {STRICT: {"type": "STRICT"}},
    }
    if plant.trims:
        found["TC_TO_DSCP_MAP"] = {
            MAPS: {str(CUT): str(dscps.trimmed)},
            LAST_HOP: {str(CUT): str(dscps.trimmed_lasthop)},
        }
        found["SWITCH_TRIMMING"] = {
            "GLOBAL": {
                "size": str(TRIM_IP_BYTES),
                "dscp_value": "from-tc",
                "tc_value": str(CUT),
                "queue_index": str(CONTROL),
            }
        }
    return found


def _uncut(plant: Plant, switch: Switch) -> Tables:
    """Exempt packets that must not be trimmed, such as probes: trimming applies to whole queues."""
    return {
        "ACL_TABLE_TYPE": {
            UNCUT_TYPE: {
                "MATCHES": ["DSCP"],
                "ACTIONS": ["DISABLE_TRIM_ACTION"],
                "BIND_POINTS": ["PORT"],
            }
        },
        "ACL_TABLE": {
            UNCUT: {
                "policy_desc": "NO_TRIM packets are not trimmed",
                "type": UNCUT_TYPE,
                "stage": "ingress",
                "ports": [interface(port.number) for port in switch.ports],
            }
        },
        "ACL_RULE": {
            f"{UNCUT}|NO_TRIM": {
                "PRIORITY": "1000",
                "DSCP": str(plant.fabric.dscps.no_trim),
                "PACKET_ACTION": "DISABLE_TRIM",
            }
        },
    }


def _queue(traffic_class: int) -> int:
    if traffic_class >= CUT:
        return CONTROL
    return RETRANSMIT if traffic_class == RETRANSMIT else DATA


def _queues(plant: Plant, switch: Switch) -> Tables:
    found: Tables = {
        "BUFFER_POOL": {POOL: {"type": "egress", "mode": "static"}},
        "BUFFER_PROFILE": {},
        "BUFFER_QUEUE": {},
        "WRED_PROFILE": {},
        "QUEUE": {},
        "PORT_QOS_MAP": {},
    }
    for port in switch.ports:
        name = interface(port.number)
        data, control = f"data_{port.queue_bytes}", f"control_{port.control_queue_bytes}"
        action = "trim" if plant.trims else "drop"
        found["BUFFER_PROFILE"][data] = _buffer(port.queue_bytes, action)
        found["BUFFER_PROFILE"][control] = _buffer(port.control_queue_bytes, "drop")
        found["BUFFER_QUEUE"][f"{name}|{DATA}-{RETRANSMIT}"] = {"profile": data}
        found["BUFFER_QUEUE"][f"{name}|{CONTROL}"] = {"profile": control}
        of_data = {"scheduler": STRICT}
        if port.marks is not None:
            marks = f"ecn_{port.marks.low_bytes}_{port.marks.high_bytes}"
            found["WRED_PROFILE"][marks] = _marking(port)
            of_data["wred_profile"] = marks
        for queue in (DATA, RETRANSMIT):
            found["QUEUE"][f"{name}|{queue}"] = of_data
        found["QUEUE"][f"{name}|{CONTROL}"] = {"scheduler": STRICT}
        found["PORT_QOS_MAP"][name] = {"dscp_to_tc_map": MAPS, "tc_to_queue_map": MAPS}
        if plant.trims:
            cut = LAST_HOP if port.to_nic else MAPS
            found["PORT_QOS_MAP"][name]["tc_to_dscp_map"] = cut
    return {table: rows for table, rows in found.items() if rows}


def _buffer(n_bytes: int, action: str) -> dict[str, str]:
    return {
        "pool": POOL,
        "size": "0",
        "static_th": str(n_bytes),
        "packet_discard_action": action,
    }


def _marking(port: Port) -> dict[str, str]:
    assert port.marks is not None
    return {
        "ecn": "ecn_green",
        "wred_green_enable": "true",
        "green_min_threshold": str(port.marks.low_bytes),
        "green_max_threshold": str(port.marks.high_bytes),
        "green_drop_probability": "100",
    }
