"""Structures and numbers of the controller's half of MRC's C API, as in `capi.layouts`."""

from __future__ import annotations

from openmrc.capi.layouts import GID, VENDOR_BYTES, Struct, bits, each, numbered, version

API_VERSION, API_OLDEST = version(1, 0, 1), version(0, 0, 0)
WITH_STATE = version(1, 0, 1)  # from this version on an EV event has the EV's state
EV_BYTES = 32
NSCC_NAME = "uet-1.0-nscc"

ENUMS: dict[str, dict[str, int]] = {
    "mrc_ctl_protocol_version": {
        "MRC_CTL_PROTOCOL_VERSION_0": 0,
        "MRC_CTL_PROTOCOL_VERSION_1": 1,
    },
    "mrc_ctl_profile_state": numbered("MRC_CTL_PROFILE_", "INIT OFFLINE ONLINE"),
    "mrc_ctl_attr_opt": bits(
        "MRC_CTL_OPT_CAP_",
        "EV_PROFILE_MODIFY_ONLINE CC_PROFILE_MODIFY_ONLINE EV_EVENT EV_EXPLICIT_RANGE"
        " EV_EVENT_PRECISE_DROP_CNT EP_OP_EV_PROBE",
    ),
    "mrc_ctl_port_admin_state": numbered("MRC_CTL_PORT_ADMIN_", "DISABLED ENABLED"),
    "mrc_ctl_port_attr_mask": {"MRC_CTL_PORT_ADMIN_STATE": 1},
    "mrc_ctl_ev_fmt_mode": bits("MRC_CTL_EV_FMT_MODE_", "STEV SRV6 UDP"),
    "mrc_ctl_ev_fmt_op": numbered("MRC_CTL_EV_FMT_OP_", "MODIFY_FIELDS QUERY_FIELDS"),
    "mrc_ctl_ev_fmt_profile_attr_mask": {
        **bits("MRC_CTL_EV_FMT_PROFILE_", "STATE CUR_STATE MODE OP"),
        "MRC_CTL_EV_FMT_VENDOR_CFG": -1 << 31,
    },
    "mrc_ctl_ev_state": {
        **bits("MRC_CTL_EV_", "GOOD ASSUMED_BAD DENIED"),
        "MRC_CTL_EV_UNKNOWN": -1 << 31,
    },
    "mrc_ctl_ev_mode": bits("MRC_CTL_EV_MODE_", "AUTO EXP GEN"),
    "mrc_ctl_ev_op": numbered(
        "MRC_CTL_EV_OP_", "REPLACE_EV MODIFY_EV_STATE QUERY_EV_STATE QUERY_EV_ARRAY"
    ),
    "mrc_ctl_ev_fields_op": numbered("MRC_CTL_EV_FIELDS_OP_", "MODIFY_FIELDS QUERY_FIELDS"),
    "mrc_ctl_ev_profile_attr_mask": {
        **bits(
            "MRC_CTL_EV_PROFILE_",
            "STATE CUR_STATE MODE FMT_ID COUNT MIN_ACTIVE EVENT_MASK EV_OP EV_FIELDS_OP",
        ),
        "MRC_CTL_EV_PROFILE_VENDOR_CFG": -1 << 31,
    },
    "mrc_ctl_ev_op_flags": {"MRC_CTL_EV_OP_F_ALL_COPIES": 1},
    "mrc_ctl_cc_profile_attr_mask": {
        **bits("MRC_CTL_CC_PROFILE_", "STATE CUR_STATE ALGORITHM CONFIG"),
        "MRC_CTL_CC_PROFILE_VENDOR_CFG": -1 << 31,
    },
    "mrc_ctl_ep_op_type": numbered("MRC_CTL_EP_OP_", "EV_PROBE PORT_STATUS_UPDATE"),
}
NUMBERS = {name: value for values in ENUMS.values() for name, value in values.items()}
GOOD, ASSUMED_BAD, DENIED, UNKNOWN = ENUMS["mrc_ctl_ev_state"].values()

DEVICE_ATTR = Struct(
    "mrc_ctl_device_attr",
    (
        ("uint32_t", "mrc_ctl_protocol_version"),
        (
            Struct(
                "",
                each(
                    "uint32_t",
                    "ev_max_fmt_profiles ev_max_profiles ev_max_count ev_free_count"
                    " ev_max_count_profile ev_count_align ev_max_width ev_fmt_mode_mask"
                    " ev_mode_mask ev_op_max_entries",
                ),
            ),
            "ev",
        ),
        (Struct("", (("uint32_t", "cc_max_profiles"), ("const char **", "algorithms"))), "cc"),
        ("uint32_t", "phy_port_mask"),
        ("uint32_t", "opt_attr"),
    ),
)
PORT_ATTR = Struct("mrc_ctl_port_attr", (("enum mrc_ctl_port_admin_state", "port_admin_state"),))
EV = Struct("mrc_ctl_ev", (("uint8_t", "val", EV_BYTES), ("uint8_t", "port")))
FMT_FIELD = Struct("mrc_ctl_ev_fmt_field", (("uint8_t", "width"),))
FMT_ATTR = Struct(
    "mrc_ctl_ev_fmt_profile_attr",
    (
        ("enum mrc_ctl_profile_state", "profile_state"),
        ("enum mrc_ctl_profile_state", "cur_profile_state"),
        ("enum mrc_ctl_ev_fmt_mode", "ev_fmt_mode"),
        (
            Struct(
                "",
                (
                    ("enum mrc_ctl_ev_fmt_op", "op"),
                    ("struct mrc_ctl_ev_fmt_field *", "fmt_fields"),
                    ("int", "fmt_field_count"),
                ),
            ),
            "ev_fmt_op",
        ),
        ("uint8_t", "vendor_cfg", VENDOR_BYTES),
    ),
)
FIELD = Struct("mrc_ctl_ev_field", each("uint32_t", "width init_val min_val max_val mask"))
ENTRY = Struct(
    "mrc_ctl_ev_op_entry",
    (
        (EV, "ev"),
        (EV, "ev_new"),
        ("enum mrc_ctl_ev_state", "state"),
        ("uint32_t", "flags"),
    ),
)
EV_ATTR = Struct(
    "mrc_ctl_ev_profile_attr",
    (
        ("enum mrc_ctl_profile_state", "profile_state"),
        ("enum mrc_ctl_profile_state", "cur_profile_state"),
        ("enum mrc_ctl_ev_mode", "ev_mode"),
        ("uint64_t", "ev_fmt_profile_id"),
        ("uint32_t", "ev_count"),
        ("uint32_t", "ev_min_active"),
        ("int", "ev_event_mask"),
        (
            Struct(
                "",
                (
                    ("enum mrc_ctl_ev_op", "op"),
                    ("struct mrc_ctl_ev_op_entry *", "entries"),
                    ("int", "entry_count"),
                ),
            ),
            "ev_op",
        ),
        (
            Struct(
                "",
                (
                    ("enum mrc_ctl_ev_fields_op", "op"),
                    ("struct mrc_ctl_ev_field *", "fields"),
                    ("int", "field_count"),
                ),
            ),
            "ev_fields_op",
        ),
        ("uint8_t", "vendor_cfg", VENDOR_BYTES),
    ),
)
CC_ATTR = Struct(
    "mrc_ctl_cc_profile_attr",
    (
        ("enum mrc_ctl_profile_state", "profile_state"),
        ("enum mrc_ctl_profile_state", "cur_profile_state"),
        ("const char *", "algorithm"),
        ("const void *", "cc_config"),
        ("uint8_t", "vendor_cfg", VENDOR_BYTES),
    ),
)
NSCC_CFG = Struct(
    "mrc_ctl_cc_nscc_cfg",
    (
        ("uint8_t", "disable_qa"),
        ("uint32_t", "adjust_bytes_threshold"),
        ("uint32_t", "adjust_period_threshold"),
        ("uint32_t", "base_rtt"),
        *each("float", "eta fi fi_scale gamma max_md_jump"),
        ("uint32_t", "max_cwnd"),
        ("uint8_t", "qa_gate"),
        ("uint32_t", "qa_threshold"),
        ("uint32_t", "target_delay"),
    ),
)
_EVENT = (("uint64_t", "profile_id"), (EV, "ev"), ("uint32_t", "drop_count"))
EV_EVENT = Struct("mrc_ctl_ev_event", (*_EVENT, ("enum mrc_ctl_ev_state", "state")))
EV_EVENT_BEFORE = Struct("mrc_ctl_ev_event", _EVENT)  # of programs of version 1.0.0
REQUEST = Struct(
    "mrc_ctl_ep_req",
    (
        ("uint16_t", "req_id"),
        (GID, "sgid"),
        (GID, "dgid"),
        ("enum mrc_ctl_ev_fmt_mode", "ev_fmt_mode"),
        (EV, "req_ev"),
        (
            Struct("", ((Struct("", (("uint32_t", "port_status"),)), "port_status_update"),), True),
            "op",
        ),
    ),
)
RESPONSE = Struct(
    "mrc_ctl_ep_rsp",
    (
        ("uint16_t", "req_id"),
        ("uint8_t", "port"),
        ("unsigned int", "rtt"),
        ("uint8_t", "adj_svc_time"),
    ),
)
STRUCTS = (
    DEVICE_ATTR, PORT_ATTR, EV, FMT_FIELD, FMT_ATTR, FIELD, ENTRY, EV_ATTR, CC_ATTR, NSCC_CFG,
    EV_EVENT, REQUEST, RESPONSE,
)  # fmt: skip
