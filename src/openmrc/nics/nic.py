"""What a controller sees of a NIC: the 14 functions of mrc_ctl.h, as methods.

Names are those of C without `mrc_ctl_`. A call that fails raises `Refused` with its errno: ENOSYS
for a function that is missing, and ETIMEDOUT for one that has not returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from openmrc.capi.control.formats import UNPOPULATED, Ev
from openmrc.capi.control.layouts import GOOD, NUMBERS
from openmrc.capi.control.profiles import State
from openmrc.capi.control.queues import EvEvent

REPLACE, MODIFY_STATE, QUERY_STATE, QUERY_ARRAY = range(4)  # operations on EVs
MODIFIES_ONLINE = NUMBERS["MRC_CTL_OPT_CAP_EV_PROFILE_MODIFY_ONLINE"]
HAS_EVENTS = NUMBERS["MRC_CTL_OPT_CAP_EV_EVENT"]
HAS_PROBES = NUMBERS["MRC_CTL_OPT_CAP_EP_OP_EV_PROBE"]


class Device(NamedTuple):
    """What a NIC can do, in the words of `mrc_ctl_device_attr`."""

    ports: tuple[int, ...]  # numbers, from 1 on
    evs_max: int  # of a profile
    align: int  # EVs of a profile are a multiple of it
    width: int  # of an EV in a packet, bits
    format_modes: int
    ev_modes: int
    entries_max: int  # of one operation; 0: no limit
    options: int


class Entry(NamedTuple):
    """An EV of an operation; `new` takes its place in a `REPLACE`."""

    ev: Ev
    new: Ev = UNPOPULATED
    state: int = GOOD
    flags: int = 0


class Shown(NamedTuple):
    """A profile: its state and its attributes, and of EVs which there are, with their states."""

    state: int
    attributes: Mapping[str, float | str | None]
    evs: Mapping[Ev, int] = {}


class Request(NamedTuple):
    """A probe: its number of 16 bits, the GID of the NIC that is asked, and the EV."""

    number: int
    to: bytes
    ev: Ev


class Answer(NamedTuple):
    """The answer to the request of this number: on which port it came, and after how long."""

    number: int
    port: int
    rtt_ns: int


class Nic(Protocol):
    """A NIC, as one controller has it open."""

    def query_version(self) -> int:
        """The version of this half of the API."""

    def query_device(self) -> Device:
        """What may be configured."""

    def query_device_ex(self) -> tuple[Device, bool]:
        """The same, and whether MRC is supported at all."""

    def query_port(self, port: int) -> bool:
        """Whether a port is enabled."""

    def modify_port(self, port: int, enabled: bool) -> None:
        """Disable a port, or enable it again."""

    def modify_ev_fmt_profile(
        self, number: int, to: State | None = None, mode: int = 0, widths: Sequence[int] = ()
    ) -> None:
        """Give a format its mode, and fields of these widths, and lead it to a state."""

    def query_ev_fmt_profile(self, number: int) -> Shown:
        """Read a format: mode and widths."""

    def modify_ev_profile(
        self,
        number: int,
        to: State | None = None,
        op: tuple[int, Sequence[Entry]] | None = None,
        attributes: Mapping[str, int] | None = None,
    ) -> None:
        """Change an EV profile (`mode`, `fmt_profile_id`, `count`, `min_active`, `event_mask`), do
        one operation for each of these EVs, and lead it to a state.
        """

    def query_ev_profile(self, number: int) -> Shown:
        """Read an EV profile, and its EVs."""

    def modify_cc_profile(
        self, number: int, to: State | None = None, config: Mapping[str, float] | None = None
    ) -> None:
        """Give a profile of NSCC its configuration, and lead it to a state."""

    def query_cc_profile(self, number: int) -> Shown:
        """Read a profile of congestion control."""

    def create_ev_event_cq(self, entries: int) -> None:
        """Create the queue of EV events."""

    def poll_ev_event(self, most: int) -> list[EvEvent]:
        """Take the oldest events of the queue."""

    def ep_batch_send_wait(self, requests: Sequence[Request], timeout_ns: int) -> list[Answer]:
        """Probe, and return what was answered in time, in the order of arrival; none twice."""
