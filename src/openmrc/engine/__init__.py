"""The MRC protocol, sans I/O: state in, packets out; no clock, no sockets, no topology.

Time is an argument (int64 picoseconds), packets are records (`packet.py`), state is arrays of
records (`state.py`). `endpoint.py` is the entry point; behind it `requester.py` is the sending half
of a QP, `responder.py` the receiving half, and `ports.py` tracks an endpoint's own ports and those
of its peers. `parameters.py` lists what can be set, and `setup.py` creates an endpoint from it.
"""
