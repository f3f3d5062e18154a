"""A fabric cut into shards, which threads run side by side: bit for bit the same, however many."""
