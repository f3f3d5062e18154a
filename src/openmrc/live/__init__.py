"""The live world: the same engine over real frames, in real time."""
