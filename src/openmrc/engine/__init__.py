"""The MRC protocol, sans I/O: state in, packets out; it knows no clock, no socket and no topology.

Time is an argument (int64 picoseconds), packets are records (`packet.py`), state is arrays of
records (`state.py`). `endpoint.py` is the front door; behind it `requester.py` is the sending half
of a QP, `responder.py` the receiving half, `ports.py` what an endpoint knows of its own and its
peers' ports. What can be set is in `parameters.py`, and `setup.py` makes an
endpoint of it.
"""
