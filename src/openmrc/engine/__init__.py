"""The MRC protocol, sans I/O: state in, packets out; it knows no clock, no socket and no topology.

Time is an argument (int64 picoseconds), packets are records (`packet.py`), state is arrays of
records (`state.py`). `requester.py` is the sending half of a QP, `responder.py` the receiving half,
`ports.py` what an endpoint knows of its own and its peers' ports.
"""
