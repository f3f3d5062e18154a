"""Structures and numbers of MRC's C API and of the part of ibverbs that it uses, as data.

The names, the order of the fields and the values are those of the public descriptions: programs are
compiled against others' headers and loaded with this library, so the offset of each field matters.
C text (`header`) and NumPy's records (`Struct.dtype`) are generated from the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from openmrc.jit import offset_of

# C type of a field -> NumPy's. A pointer is its address.
KINDS = {
    "char": "S1",
    "uint8_t": "u1",
    "uint16_t": "u2",
    "uint32_t": "u4",
    "uint64_t": "u8",
    "size_t": "u8",
    "int": "i4",
    "unsigned int": "u4",
    "float": "f4",
}


@dataclass(frozen=True)
class Struct:
    """A C structure: its fields in order, each a type, a name and, for an array, a length.

    A type is one of `KINDS`, ends in `*`, begins with `enum`, or is another structure. One without
    a name is defined where it is used.
    """

    name: str
    rows: tuple[tuple[str | Struct, str] | tuple[str | Struct, str, int], ...]
    union: bool = False

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The same structure as NumPy's record, laid out as a C compiler does."""
        rows: list[Any] = []
        for kind, name, *length in self.rows:
            one = kind.dtype if isinstance(kind, Struct) else np.dtype(_numpy(kind))
            if length and one == np.dtype("S1"):
                rows.append((name, f"S{length[0]}"))
            else:
                rows.append((name, one, (length[0],)) if length else (name, one))
        if self.union:
            names = [row[0] for row in rows]
            formats = [row[1:] if len(row) > 2 else row[1] for row in rows]
            together: Any = {"names": names, "formats": formats, "offsets": [0] * len(rows)}
            united: np.dtype[Any] = np.dtype(together, align=True)
            return united
        return np.dtype(rows, align=True)

    @property
    def declared(self) -> str:
        """How the declaration of a field of this type begins."""
        return f"{self.word} {self.name}" if self.name else self.text

    @property
    def word(self) -> str:
        """`struct` or `union`."""
        return "union" if self.union else "struct"

    @property
    def text(self) -> str:
        """Its definition in C, without the semicolon at the end."""
        lines = [f"{self.word} {self.name} {{" if self.name else f"{self.word} {{"]
        for kind, name, *length in self.rows:
            declared = kind.declared if isinstance(kind, Struct) else kind
            many = f"[{length[0]}]" if length else ""
            lines += [f"\t{line}" for line in f"{declared} {name}{many};".splitlines()]
        return "\n".join([*lines, "}"])


def _numpy(kind: str) -> str:
    if kind.endswith("*"):
        return "u8"
    return "i4" if kind.startswith("enum ") else KINDS[kind]


def each(kind: str, names: str) -> tuple[tuple[str, str], ...]:
    """Fields of one type."""
    return tuple((kind, name) for name in names.split())


def numbered(prefix: str, names: str, first: int = 0) -> dict[str, int]:
    """Names with consecutive numbers."""
    return {prefix + name: first + i for i, name in enumerate(names.split())}


def bits(prefix: str, names: str, first: int = 0) -> dict[str, int]:
    """Names with consecutive bits."""
    return {prefix + name: 1 << (first + i) for i, name in enumerate(names.split())}


# --- ibverbs: numbers

VERBS_ENUMS: dict[str, dict[str, int]] = {
    "ibv_node_type": {"IBV_NODE_UNKNOWN": -1, "IBV_NODE_CA": 1},
    "ibv_transport_type": {"IBV_TRANSPORT_UNKNOWN": -1, "IBV_TRANSPORT_IB": 0},
    "ibv_atomic_cap": numbered("IBV_ATOMIC_", "NONE HCA GLOB"),
    "ibv_mtu": numbered("IBV_MTU_", "256 512 1024 2048 4096", 1),
    "ibv_port_state": numbered("IBV_PORT_", "NOP DOWN INIT ARMED ACTIVE ACTIVE_DEFER"),
    "ibv_event_type": numbered(
        "IBV_EVENT_",
        "CQ_ERR QP_FATAL QP_REQ_ERR QP_ACCESS_ERR COMM_EST SQ_DRAINED PATH_MIG PATH_MIG_ERR"
        " DEVICE_FATAL PORT_ACTIVE PORT_ERR LID_CHANGE PKEY_CHANGE SM_CHANGE SRQ_ERR"
        " SRQ_LIMIT_REACHED QP_LAST_WQE_REACHED CLIENT_REREGISTER GID_CHANGE WQ_FATAL",
    ),
    "ibv_wc_status": numbered(
        "IBV_WC_",
        "SUCCESS LOC_LEN_ERR LOC_QP_OP_ERR LOC_EEC_OP_ERR LOC_PROT_ERR WR_FLUSH_ERR MW_BIND_ERR"
        " BAD_RESP_ERR LOC_ACCESS_ERR REM_INV_REQ_ERR REM_ACCESS_ERR REM_OP_ERR RETRY_EXC_ERR"
        " RNR_RETRY_EXC_ERR LOC_RDD_VIOL_ERR REM_INV_RD_REQ_ERR REM_ABORT_ERR INV_EECN_ERR"
        " INV_EEC_STATE_ERR FATAL_ERR RESP_TIMEOUT_ERR GENERAL_ERR TM_ERR TM_RNDV_INCOMPLETE",
    ),
    "ibv_wc_opcode": {
        **numbered("IBV_WC_", "SEND RDMA_WRITE RDMA_READ COMP_SWAP FETCH_ADD BIND_MW LOCAL_INV"),
        **numbered("IBV_WC_", "RECV RECV_RDMA_WITH_IMM", 128),
    },
    "ibv_wc_flags": bits("IBV_WC_", "GRH WITH_IMM"),
    "ibv_access_flags": {
        **bits("IBV_ACCESS_", "LOCAL_WRITE REMOTE_WRITE REMOTE_READ REMOTE_ATOMIC"),
        "IBV_ACCESS_ZERO_BASED": 1 << 5,
        "IBV_ACCESS_RELAXED_ORDERING": 1 << 20,
    },
    "ibv_qp_type": {"IBV_QPT_RC": 2, "IBV_QPT_UC": 3, "IBV_QPT_UD": 4},
    "ibv_qp_state": numbered("IBV_QPS_", "RESET INIT RTR RTS SQD SQE ERR UNKNOWN"),
    "ibv_mig_state": numbered("IBV_MIG_", "MIGRATED REARM ARMED"),
    "ibv_qp_attr_mask": {
        **bits(
            "IBV_QP_",
            "STATE CUR_STATE EN_SQD_ASYNC_NOTIFY ACCESS_FLAGS PKEY_INDEX PORT QKEY AV PATH_MTU"
            " TIMEOUT RETRY_CNT RNR_RETRY RQ_PSN MAX_QP_RD_ATOMIC ALT_PATH MIN_RNR_TIMER SQ_PSN"
            " MAX_DEST_RD_ATOMIC PATH_MIG_STATE CAP DEST_QPN",
        ),
        "IBV_QP_RATE_LIMIT": 1 << 25,
    },
    "ibv_wr_opcode": numbered("IBV_WR_", "RDMA_WRITE RDMA_WRITE_WITH_IMM SEND SEND_WITH_IMM"),
    "ibv_send_flags": bits("IBV_SEND_", "FENCE SIGNALED SOLICITED INLINE IP_CSUM"),
}
LINK_LAYERS = numbered("IBV_LINK_LAYER_", "UNSPECIFIED INFINIBAND ETHERNET")

# --- ibverbs: structures

GID = Struct(
    "ibv_gid",
    (
        ("uint8_t", "raw", 16),
        (Struct("", (("uint64_t", "subnet_prefix"), ("uint64_t", "interface_id"))), "global"),
    ),
    union=True,
)
DEVICE = Struct(
    "ibv_device",
    (
        ("void *", "_unused", 2),
        ("enum ibv_node_type", "node_type"),
        ("enum ibv_transport_type", "transport_type"),
        ("char", "name", 64),
        ("char", "dev_name", 64),
        ("char", "dev_path", 256),
        ("char", "ibdev_path", 256),
    ),
)
OPS = Struct(  # functions that ibverbs' inline ones call
    "ibv_context_ops",
    (
        ("void *", "_unused0", 11),
        ("void *", "poll_cq"),
        ("void *", "req_notify_cq"),
        ("void *", "_unused1", 12),
        ("void *", "post_send"),
        ("void *", "post_recv"),
        ("void *", "_unused2", 5),
    ),
)
MUTEX, CONDITION = ("uint64_t", "mutex", 5), ("uint64_t", "cond", 6)  # pthread's, on 64-bit Linux
CONTEXT = Struct(
    "ibv_context",
    (
        ("struct ibv_device *", "device"),
        (OPS, "ops"),
        ("int", "cmd_fd"),
        ("int", "async_fd"),
        ("int", "num_comp_vectors"),
        MUTEX,
        ("void *", "abi_compat"),
    ),
)
# What precedes a context that says so by `abi_compat`: functions of extensions, the newest first,
# then the total length. Only one exists, which a caller may replace.
EXTENDED = Struct(
    "verbs_context",
    (
        ("void *", "_unused0", 39),
        ("void *", "create_qp_ex"),
        ("void *", "_unused1", 5),
        ("size_t", "sz"),
        (CONTEXT, "context"),
    ),
)
DEVICE_ATTR = Struct(
    "ibv_device_attr",
    (
        ("char", "fw_ver", 64),
        *each("uint64_t", "node_guid sys_image_guid max_mr_size page_size_cap"),
        *each("uint32_t", "vendor_id vendor_part_id hw_ver"),
        ("int", "max_qp"),
        ("int", "max_qp_wr"),
        ("unsigned int", "device_cap_flags"),
        *each(
            "int",
            (
                "max_sge max_sge_rd max_cq max_cqe max_mr max_pd max_qp_rd_atom max_ee_rd_atom"
                " max_res_rd_atom max_qp_init_rd_atom max_ee_init_rd_atom"
            ),
        ),
        ("enum ibv_atomic_cap", "atomic_cap"),
        *each(
            "int",
            (
                "max_ee max_rdd max_mw max_raw_ipv6_qp max_raw_ethy_qp max_mcast_grp"
                " max_mcast_qp_attach max_total_mcast_qp_attach max_ah max_fmr max_map_per_fmr"
                " max_srq max_srq_wr max_srq_sge"
            ),
        ),
        ("uint16_t", "max_pkeys"),
        ("uint8_t", "local_ca_ack_delay"),
        ("uint8_t", "phys_port_cnt"),
    ),
)
PORT_ATTR = Struct(
    "ibv_port_attr",
    (
        ("enum ibv_port_state", "state"),
        ("enum ibv_mtu", "max_mtu"),
        ("enum ibv_mtu", "active_mtu"),
        ("int", "gid_tbl_len"),
        *each("uint32_t", "port_cap_flags max_msg_sz bad_pkey_cntr qkey_viol_cntr"),
        *each("uint16_t", "pkey_tbl_len lid sm_lid"),
        *each(
            "uint8_t",
            (
                "lmc max_vl_num sm_sl subnet_timeout init_type_reply active_width active_speed"
                " phys_state link_layer flags"
            ),
        ),
        ("uint16_t", "port_cap_flags2"),
        ("uint32_t", "active_speed_ex"),
    ),
)
PORT_ATTR_OLD_BYTES = offset_of(PORT_ATTR.dtype, "flags")  # `ibv_query_port`'s
GID_ENTRY = Struct(
    "ibv_gid_entry",
    ((GID, "gid"), *each("uint32_t", "gid_index port_num gid_type ndev_ifindex")),
)
PD = Struct("ibv_pd", (("struct ibv_context *", "context"), ("uint32_t", "handle")))
MR = Struct(
    "ibv_mr",
    (
        ("struct ibv_context *", "context"),
        ("struct ibv_pd *", "pd"),
        ("void *", "addr"),
        ("size_t", "length"),
        *each("uint32_t", "handle lkey rkey"),
    ),
)
CQ = Struct(
    "ibv_cq",
    (
        ("struct ibv_context *", "context"),
        ("struct ibv_comp_channel *", "channel"),
        ("void *", "cq_context"),
        ("uint32_t", "handle"),
        ("int", "cqe"),
        MUTEX,
        CONDITION,
        ("uint32_t", "comp_events_completed"),
        ("uint32_t", "async_events_completed"),
    ),
)
CHANNEL = Struct(
    "ibv_comp_channel", (("struct ibv_context *", "context"), ("int", "fd"), ("int", "refcnt"))
)
QP = Struct(
    "ibv_qp",
    (
        ("struct ibv_context *", "context"),
        ("void *", "qp_context"),
        ("struct ibv_pd *", "pd"),
        ("struct ibv_cq *", "send_cq"),
        ("struct ibv_cq *", "recv_cq"),
        ("struct ibv_srq *", "srq"),
        ("uint32_t", "handle"),
        ("uint32_t", "qp_num"),
        ("enum ibv_qp_state", "state"),
        ("enum ibv_qp_type", "qp_type"),
        MUTEX,
        CONDITION,
        ("uint32_t", "events_completed"),
    ),
)
QP_CAP = Struct(
    "ibv_qp_cap",
    each("uint32_t", "max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data"),
)
QP_INIT_ATTR = Struct(
    "ibv_qp_init_attr",
    (
        ("void *", "qp_context"),
        ("struct ibv_cq *", "send_cq"),
        ("struct ibv_cq *", "recv_cq"),
        ("struct ibv_srq *", "srq"),
        (QP_CAP, "cap"),
        ("enum ibv_qp_type", "qp_type"),
        ("int", "sq_sig_all"),
    ),
)
GRH = Struct(
    "ibv_global_route",
    (
        (GID, "dgid"),
        ("uint32_t", "flow_label"),
        *each("uint8_t", "sgid_index hop_limit traffic_class"),
    ),
)
AH_ATTR = Struct(
    "ibv_ah_attr",
    (
        (GRH, "grh"),
        ("uint16_t", "dlid"),
        *each("uint8_t", "sl src_path_bits static_rate is_global port_num"),
    ),
)
QP_ATTR = Struct(
    "ibv_qp_attr",
    (
        ("enum ibv_qp_state", "qp_state"),
        ("enum ibv_qp_state", "cur_qp_state"),
        ("enum ibv_mtu", "path_mtu"),
        ("enum ibv_mig_state", "path_mig_state"),
        *each("uint32_t", "qkey rq_psn sq_psn dest_qp_num"),
        ("unsigned int", "qp_access_flags"),
        (QP_CAP, "cap"),
        (AH_ATTR, "ah_attr"),
        (AH_ATTR, "alt_ah_attr"),
        ("uint16_t", "pkey_index"),
        ("uint16_t", "alt_pkey_index"),
        *each(
            "uint8_t",
            (
                "en_sqd_async_notify sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer"
                " port_num timeout retry_cnt rnr_retry alt_port_num alt_timeout"
            ),
        ),
        ("uint32_t", "rate_limit"),
    ),
)
SGE = Struct("ibv_sge", (("uint64_t", "addr"), ("uint32_t", "length"), ("uint32_t", "lkey")))
RDMA = Struct("", (("uint64_t", "remote_addr"), ("uint32_t", "rkey")))
SEND_WR = Struct(
    "ibv_send_wr",
    (
        ("uint64_t", "wr_id"),
        ("struct ibv_send_wr *", "next"),
        ("struct ibv_sge *", "sg_list"),
        ("int", "num_sge"),
        ("enum ibv_wr_opcode", "opcode"),
        ("unsigned int", "send_flags"),
        ("uint32_t", "imm_data"),  # in network byte order
        (Struct("", ((RDMA, "rdma"), ("uint64_t", "_others", 2))), "wr"),
        ("uint64_t", "_others", 7),
    ),
)
RECV_WR = Struct(
    "ibv_recv_wr",
    (
        ("uint64_t", "wr_id"),
        ("struct ibv_recv_wr *", "next"),
        ("struct ibv_sge *", "sg_list"),
        ("int", "num_sge"),
    ),
)
WC = Struct(
    "ibv_wc",
    (
        ("uint64_t", "wr_id"),
        ("enum ibv_wc_status", "status"),
        ("enum ibv_wc_opcode", "opcode"),
        ("uint32_t", "vendor_err"),
        ("uint32_t", "byte_len"),
        ("uint32_t", "imm_data"),  # in network byte order
        ("uint32_t", "qp_num"),
        ("uint32_t", "src_qp"),
        ("unsigned int", "wc_flags"),
        ("uint16_t", "pkey_index"),
        ("uint16_t", "slid"),
        ("uint8_t", "sl"),
        ("uint8_t", "dlid_path_bits"),
    ),
)


def _event(cq: str, qp: str) -> tuple[tuple[Struct, str], tuple[str, str]]:
    element = Struct(
        "", ((f"struct {cq} *", "cq"), (f"struct {qp} *", "qp"), ("int", "port_num")), True
    )
    return (element, "element"), ("enum ibv_event_type", "event_type")


ASYNC_EVENT = Struct("ibv_async_event", _event("ibv_cq", "ibv_qp"))
VERBS_STRUCTS = (
    GID, DEVICE, OPS, CONTEXT, DEVICE_ATTR, PORT_ATTR, GID_ENTRY, PD, MR, CHANNEL, CQ, QP, QP_CAP,
    QP_INIT_ATTR, GRH, AH_ATTR, QP_ATTR, SGE, SEND_WR, RECV_WR, WC, ASYNC_EVENT,
)  # fmt: skip

# --- MRC

VENDOR_BYTES = 128
MPR_UNIT = 128  # PSNs (MRC 1.5)
TIMEOUT_MAX, LINEAR_MAX, EXP_MAX = 24, 7, 25  # MRC 1.8


def version(major: int, minor: int, below: int) -> int:
    """A version of the API as a number."""
    return major << 24 | minor << 16 | below


API_VERSION, API_OLDEST = version(1, 0, 1), version(0, 0, 0)

MRC_ENUMS: dict[str, dict[str, int]] = {
    "mrc_protocol_version": {"MRC_PROTOCOL_VERSION_0": 0, "MRC_PROTOCOL_VERSION_1": 1},
    "mrc_device_cap": bits("MRC_DEVICE_CAP_", "TRIM_NACK DYNAMIC_MPR SVC_TIME"),
    "mrc_qp_hint_attr_mask": {
        **bits("MRC_QP_HINT_", "NUM_QPS_PER_PEER NUM_SEND_PEERS NUM_REMOTE_RECV_PEERS"),
        "MRC_QP_HINT_VENDOR_CFG": -1 << 31,
    },
    "mrc_qp_attr_mask": {
        **bits(
            "MRC_QP_",
            "MAX_WIMM MAX_WIMM_DEST MPR MPR_DEST TIMEOUT EV_PROFILE_ID CC_PROFILE_ID HINT"
            " RETRY_CNT CAP",
        ),
        "MRC_QP_VENDOR_CFG": -1 << 31,
    },
    "mrc_qp_cap": bits(
        "MRC_QP_CAP_", "TRIM_NACK_DEST_UNSUPPORTED DYNAMIC_MPR SVC_TIME_DEST_UNSUPPORTED"
    ),
}
MRC_DEVICE_ATTR = Struct(
    "mrc_device_attr",
    (
        ("uint32_t", "mrc_protocol_version"),
        (Struct("", (("uint16_t", "max_wimm"), ("uint16_t", "max_wimm_dest"))), "wimm_attr"),
        (Struct("", (("uint8_t", "max_mpr"), ("uint8_t", "mpr_resolution"))), "mpr_attr"),
        (Struct("", (("uint32_t", "max_qp_hint"),)), "qp_attr"),
        ("uint32_t", "cap"),
    ),
)
MRC_CONTEXT_ATTR = Struct(
    "mrc_context_attr",
    (("uint32_t", "mrc_api_version_used"), ("uint32_t", "mrc_vendor_api_version_used")),
)
HINT_ATTR = Struct(
    "mrc_qp_hint_attr",
    (
        ("int", "num_qps_per_peer"),
        ("int", "num_send_peers"),
        ("int", "num_remote_recv_peers"),
        ("uint8_t", "vendor_cfg", VENDOR_BYTES),
    ),
)
HINT_INIT_ATTR = Struct("mrc_qp_hint_init_attr", ((HINT_ATTR, "attr"),))
MRC_QP_INIT_ATTR = Struct(
    "mrc_qp_init_attr",
    (
        ("void *", "qp_context"),
        ("struct mrc_cq *", "send_cq"),
        ("struct mrc_cq *", "recv_cq"),
        (QP_CAP, "cap"),
        ("int", "sq_sig_all"),
        ("struct ibv_pd *", "pd"),
        ("uint64_t", "send_ops_flags"),
        ("enum mrc_protocol_version", "protocol_version"),
    ),
)
MRC_QP_ATTR = Struct(
    "mrc_qp_attr",
    (
        (Struct("", (("uint8_t", "mpr"), ("uint8_t", "mpr_dest"))), "mpr"),
        (Struct("", (("uint16_t", "max_wimm"), ("uint16_t", "max_wimm_dest"))), "wimm"),
        ("uint8_t", "timeout"),
        (Struct("", (("uint64_t", "ev_profile_id"), ("uint64_t", "cc_profile_id"))), "profile"),
        (Struct("", (("uint8_t", "linear_cnt"), ("uint8_t", "exp_cnt"))), "retry"),
        ("struct mrc_qp_hint *", "qp_hint"),
        ("uint32_t", "cap"),
        ("uint8_t", "vendor_cfg", VENDOR_BYTES),
    ),
)
MRC_ASYNC_EVENT = Struct("mrc_async_event", _event("mrc_cq", "mrc_qp"))
MRC_STRUCTS = (
    MRC_DEVICE_ATTR, MRC_CONTEXT_ATTR, HINT_ATTR, HINT_INIT_ATTR, MRC_QP_INIT_ATTR, MRC_QP_ATTR,
    MRC_ASYNC_EVENT,
)  # fmt: skip
HANDLES = ("mrc_context", "mrc_qp_hint", "mrc_qp", "mrc_cq", "mrc_comp_channel")
NUMBERS = {
    name: value
    for enums in (VERBS_ENUMS, MRC_ENUMS)
    for values in enums.values()
    for name, value in values.items()
} | LINK_LAYERS
