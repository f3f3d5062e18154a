"""World 1: the engine in virtual time, on a fabric simulated packet by packet."""
