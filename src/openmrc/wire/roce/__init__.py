"""RoCEv2 on the wire, and the pause frames of its networks."""
