"""The functions of both libraries: their prototypes, and how each reports failure.

MRC's API and ibverbs define that for each function. The implementation of a function returns a
number at or above 0, or -errno; the stub converts it to what a program expects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# How a function reports its result, and what it returns on failure; errno is set in any case.
CODE = "code"  # 0, or the errno itself
MINUS = "minus"  # the result, or -1
NULL = "null"  # a pointer, or NULL
NEGATIVE = "negative"  # the result, or the errno below 0
PLAIN = "plain"  # the result; it cannot fail
NOTHING = "nothing"

HOT = {"mrc_post_send": CODE, "mrc_post_recv": MINUS, "mrc_poll_cq": MINUS}  # `hot`, not `control`

MRC = """
minus   int mrc_query_device_ex(struct ibv_context *context, struct mrc_context *mcontext, struct mrc_device_attr *attr, int *supported)
minus   int mrc_query_device(struct ibv_context *context, struct mrc_device_attr *attr, int *supported)
nothing void mrc_query_version(uint32_t *current, uint32_t *oldest, uint32_t *vendor, uint32_t *vendor_oldest)
null    struct mrc_context *mrc_create_context(struct ibv_context *context, struct mrc_context_attr *attr)
minus   int mrc_destroy_context(struct mrc_context *context)
code    int mrc_create_comp_channel(struct mrc_context *context, struct mrc_comp_channel **channel)
minus   int mrc_get_comp_channel_fd(struct mrc_comp_channel *channel, int *fd)
code    int mrc_destroy_comp_channel(struct mrc_comp_channel *channel)
null    struct mrc_cq *mrc_create_cq(struct mrc_context *context, int cqe, void *cq_context, struct mrc_comp_channel *channel, int comp_vector)
minus   int mrc_poll_cq(struct mrc_cq *cq, int n, struct ibv_wc *wc)
code    int mrc_destroy_cq(struct mrc_cq *cq)
null    struct mrc_qp_hint *mrc_create_qp_hint(struct mrc_context *context, struct mrc_qp_hint_init_attr *attr)
minus   int mrc_destroy_qp_hint(struct mrc_qp_hint *hint)
minus   int mrc_query_qp_hint(struct mrc_qp_hint *hint, struct mrc_qp_hint_attr *attr, int mask)
minus   int mrc_modify_qp_hint(struct mrc_qp_hint *hint, struct mrc_qp_hint_attr *attr, int mask)
null    struct mrc_qp *mrc_create_qp(struct mrc_context *context, struct mrc_qp_init_attr *attr)
code    int mrc_destroy_qp(struct mrc_qp *qp)
code    int mrc_query_qp(struct mrc_qp *qp, struct ibv_qp_attr *verbs, int verbs_mask, struct mrc_qp_attr *attr, int mask, struct mrc_qp_init_attr *init)
code    int mrc_modify_qp(struct mrc_qp *qp, struct ibv_qp_attr *verbs, int verbs_mask, struct mrc_qp_attr *attr, int mask)
minus   int mrc_get_qpn(struct mrc_qp *qp, uint32_t *qpn)
minus   int mrc_post_recv(struct mrc_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
code    int mrc_post_send(struct mrc_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
minus   int mrc_get_async_event(struct mrc_context *context, struct mrc_async_event *event)
nothing void mrc_ack_async_event(struct mrc_async_event *event)
code    int mrc_req_notify_cq(struct mrc_cq *cq, int solicited_only)
minus   int mrc_get_cq_event(struct mrc_comp_channel *channel, struct mrc_cq **cq, void **cq_context)
nothing void mrc_ack_cq_events(struct mrc_cq *cq, unsigned int n)
"""  # noqa: E501

# The controller's half, mrc_ctl.h
CTL = """
minus   int mrc_ctl_query_device_ex(struct ibv_context *context, struct mrc_context *mcontext, struct mrc_ctl_device_attr *attr, int *supported)
minus   int mrc_ctl_query_device(struct ibv_context *context, struct mrc_ctl_device_attr *attr)
nothing void mrc_ctl_query_version(uint32_t *current, uint32_t *oldest, uint32_t *vendor, uint32_t *vendor_oldest)
minus   int mrc_ctl_query_port(struct mrc_context *context, uint8_t port, struct mrc_ctl_port_attr *attr, int mask)
minus   int mrc_ctl_modify_port(struct mrc_context *context, uint8_t port, struct mrc_ctl_port_attr *attr, int mask)
minus   int mrc_ctl_modify_ev_fmt_profile(struct mrc_context *context, uint64_t number, struct mrc_ctl_ev_fmt_profile_attr *attr, int mask)
minus   int mrc_ctl_query_ev_fmt_profile(struct mrc_context *context, uint64_t number, struct mrc_ctl_ev_fmt_profile_attr *attr, int mask)
minus   int mrc_ctl_modify_ev_profile(struct mrc_context *context, uint64_t number, struct mrc_ctl_ev_profile_attr *attr, int mask)
minus   int mrc_ctl_query_ev_profile(struct mrc_context *context, uint64_t number, struct mrc_ctl_ev_profile_attr *attr, int mask)
minus   int mrc_ctl_modify_cc_profile(struct mrc_context *context, uint64_t number, struct mrc_ctl_cc_profile_attr *attr, int mask)
minus   int mrc_ctl_query_cc_profile(struct mrc_context *context, uint64_t number, struct mrc_ctl_cc_profile_attr *attr, int mask)
null    struct mrc_cq *mrc_ctl_create_ev_event_cq(struct mrc_context *context, int cqe, void *cq_context, struct mrc_comp_channel *channel, int comp_vector)
negative int mrc_ctl_poll_ev_event(struct mrc_cq *cq, int n, struct mrc_ctl_ev_event *events)
minus   int mrc_ctl_ep_batch_send_wait(struct mrc_context *context, uint8_t req_tc, enum mrc_ctl_ep_op_type op_type, struct mrc_ctl_ep_req *req, int num_req, uint32_t rsp_timeout, struct mrc_ctl_ep_rsp *rsp, int *num_rsp)
"""  # noqa: E501

# With the version of the symbol that programs linked with rdma-core request.
VERBS = """
1.1 null    struct ibv_device **ibv_get_device_list(int *n)
1.1 nothing void ibv_free_device_list(struct ibv_device **list)
1.1 null    const char *ibv_get_device_name(struct ibv_device *device)
1.1 plain   uint64_t ibv_get_device_guid(struct ibv_device *device)
1.1 null    struct ibv_context *ibv_open_device(struct ibv_device *device)
1.1 minus   int ibv_close_device(struct ibv_context *context)
1.1 code    int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
1.1 code    int ibv_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
1.1 minus   int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
1.11 code   int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags, size_t bytes)
1.1 minus   int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, uint16_t *pkey)
1.1 null    struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
1.1 code    int ibv_dealloc_pd(struct ibv_pd *pd)
1.1 null    struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
1.7 null    struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *address, size_t length, uint64_t iova, int access)
1.8 null    struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length, uint64_t iova, unsigned int access)
1.1 code    int ibv_dereg_mr(struct ibv_mr *mr)
1.1 plain   int ibv_fork_init(void)
1.1 plain   const char *ibv_wc_status_str(enum ibv_wc_status status)
1.1 plain   const char *ibv_port_state_str(enum ibv_port_state state)
1.1 plain   const char *ibv_event_type_str(enum ibv_event_type event)
1.1 plain   const char *ibv_node_type_str(enum ibv_node_type type)
"""  # noqa: E501

# Functions of ibverbs for which MRC's API has its own, and those that MRC lacks: programs that were
# linked with a whole libibverbs load, and learn by errno that a function is missing.
ABSENT = """
1.1 null ibv_create_comp_channel ibv_create_cq ibv_create_qp ibv_create_srq ibv_create_ah ibv_create_ah_from_wc
1.1 code ibv_destroy_comp_channel ibv_destroy_cq ibv_destroy_qp ibv_destroy_srq ibv_destroy_ah ibv_resize_cq
1.1 code ibv_modify_qp ibv_query_qp ibv_modify_srq ibv_query_srq ibv_attach_mcast ibv_detach_mcast ibv_rereg_mr
1.1 minus ibv_get_async_event ibv_get_cq_event ibv_init_ah_from_wc ibv_rate_to_mbps mbps_to_ibv_rate
1.1 nothing ibv_ack_async_event ibv_ack_cq_events
1.10 code ibv_query_ece ibv_set_ece
1.12 null ibv_reg_dmabuf_mr
"""  # noqa: E501


@dataclass(frozen=True)
class Call:
    """A function: its kind of result, the result's type, its name, its parameters as type and
    name.
    """

    answers: str
    result: str
    name: str
    parameters: tuple[tuple[str, str], ...]
    version: str = ""  # of the symbol

    @property
    def prototype(self) -> str:
        """The prototype in C, without the semicolon."""
        words = ", ".join(_joined(*one) for one in self.parameters) or "void"
        return f"{_joined(self.result, self.name)}({words})"


def _joined(kind: str, name: str) -> str:
    return f"{kind}{'' if kind.endswith('*') else ' '}{name}"


def _parameter(text: str) -> tuple[str, str]:
    found = re.fullmatch(r"(.*?)(\w+)", text.strip())
    assert found is not None
    return found[1].strip(), found[2]


def _call(line: str) -> Call:
    found = re.fullmatch(r"(?:([\d.]+) +)?(\w+) +(.*?)(\w+)\((.*)\)", line)
    assert found is not None
    version, answers, result, name, words = found.groups()
    given = () if words == "void" else tuple(map(_parameter, words.split(",")))
    return Call(answers, result.strip(), name, given, version or "")


def _absent(line: str) -> list[Call]:
    version, answers, *names = line.split()
    result = {NULL: "void *", NOTHING: "void"}.get(answers, "int")
    return [Call(answers, result, name, (), version) for name in names]


MRC_CALLS = tuple(map(_call, MRC.strip().splitlines()))
CTL_CALLS = tuple(map(_call, CTL.strip().splitlines()))
VERBS_CALLS = tuple(map(_call, VERBS.strip().splitlines()))
ABSENT_CALLS = tuple(one for line in ABSENT.strip().splitlines() for one in _absent(line))
CONTROL = tuple(one.name for one in (*MRC_CALLS, *CTL_CALLS, *VERBS_CALLS) if one.name not in HOT)
