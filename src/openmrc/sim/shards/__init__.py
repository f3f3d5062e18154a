"""A fabric cut into shards, which threads run in parallel: bit for bit the same results."""
