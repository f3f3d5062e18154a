"""The enumerations of a device, with the numbers of ibverbs where it has them."""

from __future__ import annotations

import enum

from openmrc.engine import state as es
from openmrc.live.endpoint import state


class QpState(enum.IntEnum):
    """MRC 1.7, as `ibv_qp_state`."""

    RESET, INIT, RTR, RTS, ERROR = es.RESET, es.INIT, es.RTR, es.RTS, es.ERROR


class Status(enum.IntEnum):
    """Status of a work completion, as `ibv_wc_status`."""

    SUCCESS = state.SUCCESS
    RETRY_EXC_ERR = state.RETRY_EXC_ERR
    REM_ACCESS_ERR = state.REM_ACCESS_ERR
    REM_INV_REQ_ERR = state.REM_INV_REQ_ERR
    REM_OP_ERR = state.REM_OP_ERR
    WR_FLUSH_ERR = state.WR_FLUSH_ERR
    GENERAL_ERR = state.GENERAL_ERR


class Opcode(enum.IntEnum):
    """Of a work completion, as `ibv_wc_opcode`."""

    RDMA_WRITE, RECV_RDMA_WITH_IMM = state.RDMA_WRITE, state.RECV_RDMA_WITH_IMM


class EventKind(enum.IntEnum):
    """Of an asynchronous event."""

    PATH_BAD, PATH_REVIVED = state.PATH_BAD, state.PATH_REVIVED
    PORT_DOWN, PORT_UP = state.PORT_DOWN, state.PORT_UP
    QP_ERROR = state.QP_ERROR
