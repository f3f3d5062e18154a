"""The MRC protocol, sans I/O: state in, packets out; no clock, no sockets, no topology.

Time is an argument (int64 picoseconds), packets are records (`packet.py`), state is arrays of
records (`state.py`). `setup.py` creates an endpoint from what `parameters.py` lists and leads its
queue pairs through their life (`qp.py`), `endpoint.py` is the entry point while it runs, and
`observe.py` and `place.py` show what has become of a queue pair. Behind these, `requester.py` is
the sending half of a QP, `responder.py` the receiving half, and `ports.py` tracks an endpoint's own
ports and those of its peers.
"""

__all__ = [
    "account",
    "ahead",
    "bits",
    "endpoint",
    "ev",
    "observe",
    "packet",
    "parameters",
    "place",
    "policy",
    "qp",
    "setup",
    "state",
    "verdict",
]
