"""A GOAL schedule while it is read: its operations, checked, whatever form the file has."""

from __future__ import annotations

from openmrc.errors import InputError
from openmrc.fabric.words import NUMBER_MAX
from openmrc.workload import operations as ops

PS_PER_NS = 1000
CPUS = 256  # a byte in the binary form, as is the NIC
RANKS_MAX = 1 << 20
TAG_MAX = (1 << 32) - 1
ANY = -1  # of a peer or a tag


class Schedule:
    """The operations of all ranks; `at` is the place in the file that an `InputError` names."""

    def __init__(self, path: str, n_units: int, scale: float, rank_nics: int) -> None:
        self.path = path
        self.n_units = n_units
        self.scale = scale
        self.rank_nics = rank_nics
        self.n_ranks = -1
        self.ops = ops.Operations(0, str, rank_nics)

    def ranks(self, at: str, n_ranks: int) -> None:
        """Take the number of ranks, which a file states first."""
        self.n_ranks = self.ops.n_ranks = within(at, "num_ranks", n_ranks, RANKS_MAX)
        if n_ranks * self.rank_nics > self.n_units:
            raise InputError(
                f"{at}: {n_ranks} ranks with {self.rank_nics} NICs each on {self.n_units} NICs;"
                " take a larger fabric"
            )

    def calc(self, at: str, rank: int, ns: int, cpu: int) -> int:
        """Append a computation; return its number."""
        self._check_room(at)
        ps = ops.picoseconds(at, ns, PS_PER_NS, self.scale)
        return self.ops.add(ops.CALC, ps, rank * CPUS + within(at, "cpu", cpu, CPUS - 1))

    def transfer(
        self, at: str, rank: int, kind: int, size: int, peer: int, tag: int, cpu: int, nic: int
    ) -> int:
        """Append a send or a receive; return its number."""
        self._check_room(at)
        word = "send" if kind == ops.SEND else "recv"
        if ANY in (peer, tag):
            raise InputError(
                f"{at}: {word} {'from any rank' if peer == ANY else 'with any tag'} (-1) is not"
                " supported: which message it gets would depend on the run; name it"
            )
        if within(at, "rank", peer, self.n_ranks - 1) == rank:
            raise InputError(
                f"{at}: rank {peer} {word}s to itself; a calc is as long as that takes"
            )
        # an RDMA NIC needs no cpu to send, but what is named must exist
        within(at, "cpu", cpu, CPUS - 1)
        if nic >= self.rank_nics:
            raise InputError(
                f"{at}: nic {nic}, but a rank has {self.rank_nics}; set workload.rank_nics"
            )
        unit = rank * self.rank_nics + nic
        size = within(at, "size", size, NUMBER_MAX)
        return self.ops.add(kind, size, unit, peer, within(at, "tag", tag, TAG_MAX))

    def wait(self, later: int, earlier: int, by_begin: bool) -> None:
        """Make `later` wait for the end of `earlier`, or for its beginning."""
        if by_begin:
            self.ops.started.append(earlier)
            self.ops.then.append(later)
        else:
            self.ops.wait(later, earlier)

    def _check_room(self, at: str) -> None:
        if len(self.ops.kind) == ops.OPERATIONS_MAX:
            raise InputError(f"{at}: {ops.OPERATIONS_MAX} operations are accepted at most")


def within(at: str, name: str, value: int, most: int) -> int:
    """Return `value` if it is 0 to `most`; raise `InputError` otherwise."""
    if not 0 <= value <= most:
        raise out_of_range(at, name, str(value), most)
    return value


def out_of_range(at: str, name: str, word: str, most: int) -> InputError:
    """Return the error of a number that is not 0 to `most`."""
    return InputError(f"{at}: {name} {word[:30]}; 0 to {most} are accepted")
