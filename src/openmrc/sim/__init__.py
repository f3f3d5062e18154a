"""The simulator: the engine in virtual time, on a fabric simulated packet by packet."""
