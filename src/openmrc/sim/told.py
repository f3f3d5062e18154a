"""What a run tells of its messages and computations, whatever carried them: times, bytes, goodput.

Of a world it reads the records of messages, and the bins of time that these were counted in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.sim.net import network
from openmrc.sim.net import state as ss
from openmrc.traffic.traffic import Traffic


class Told:
    """A world whose messages are those of `net`; times in ps."""

    net: ss.Net
    traffic: Traffic

    @property
    def now_ps(self) -> int:
        """Simulated time, ps: of the last completion, or computation, if all is complete."""
        c = self.net.ctl[0]
        if c.messages_done == self.traffic.n_msgs and not c.messages_open:
            return int(self.net.message.done_at.max())
        return int(c.now)

    @property
    def bin_ps(self) -> int:
        """Width of a bin of the timeline, ps."""
        return int(self.net.ctl[0].bin_ps)

    @property
    def placed_ps(self) -> int:
        """When payload was last placed, ps; -1 if none was."""
        return int(self.net.ctl[0].placed_at)

    @property
    def bytes_verified(self) -> int:
        """Payload bytes that were placed exactly once, at their address, with their content."""
        return int(self.net.ctl[0].verified_bytes)

    def flows(self) -> dict[str, npt.NDArray[Any]]:
        """Per entry of the workload, in its order; times in ps, -1 where it did not happen.

        A series starts with its first message; it is delivered and done when it is complete.
        """
        m = self.net.message[: self.traffic.n_msgs]
        completed = np.asarray(m.fate) == ss.COMPLETED
        return {
            "src": self.traffic.msg_src,
            "dst": self.traffic.msg_dst,
            "qp": self.traffic.msg_qp,
            "bytes": self.traffic.msg_total_bytes,
            "messages": self.traffic.msg_count.copy(),
            "start_ps": m.posted_at.copy(),
            "done_ps": np.where(completed, m.done_at, network.NO_TIME),
            "delivered_ps": np.where(m.many & ~completed, network.NO_TIME, m.delivered_at),
            "retransmitted": m.retransmitted.astype(np.int64),
            "failed": np.asarray(m.fate) == ss.FAILED,
        }

    @property
    def died_ps(self) -> int | None:
        """When a QP error ended the run (`Traffic.ends_on_error`), ps; None if none did."""
        c = self.net.ctl[0]
        return int(c.now) if c.ended else None

    def calcs_ended_ps(self) -> npt.NDArray[np.int64]:
        """Per computation of the workload, when it ended, ps; -1 where it did not."""
        ended: npt.NDArray[np.int64] = self.net.message.done_at[self.traffic.n_msgs :].copy()
        return ended

    def timeline(self) -> dict[str, npt.NDArray[np.int64]]:
        """Per bin of `bin_ps`, up to now: start time, payload bytes placed, packets retransmitted,
        lost and trimmed.
        """
        n = self._bins()
        t = self._timeline()[:n]
        return {
            "t_ps": np.arange(n, dtype=np.int64) * self.bin_ps,
            "goodput_bytes": t[:, ss.BIN_GOODPUT].copy(),
            "retransmitted": t[:, ss.BIN_RETRANSMITTED].copy(),
            "lost": t[:, ss.BIN_LOST].copy(),
            "trimmed": t[:, ss.BIN_TRIMMED].copy(),
        }

    def placed(self) -> dict[str, npt.NDArray[np.int64]]:
        """Per bin of the timeline, payload bytes placed of each `flow`, [bins, flows], and of each
        `job`, [bins, jobs]; without a kind that has none, or more than `network.RATES_MAX`.
        """
        kept = self._rate()[: self._bins()].copy()
        traffic, found = self.traffic, {}
        if 0 < traffic.n_msgs <= network.RATES_MAX:
            found["flow"] = kept
            mine = traffic.msg_job == np.arange(len(traffic.jobs))[:, None]
            kept = kept @ mine.T.astype(np.int64)
        if kept.shape[1]:
            found["job"] = kept
        return found

    def _bins(self) -> int:
        """The number of bins of the timeline so far."""
        c = self.net.ctl[0]
        return min(int(c.now // c.bin_ps) + 1, len(self.net.timeline))

    def _timeline(self) -> npt.NDArray[np.int64]:
        """The bins of `timeline`, int64 [bins, ss.BIN_COLUMNS]."""
        found: npt.NDArray[np.int64] = self.net.timeline
        return found

    def _rate(self) -> npt.NDArray[np.int64]:
        """The bins of `placed`, int64 [bins, columns]."""
        found: npt.NDArray[np.int64] = self.net.rate
        return found
