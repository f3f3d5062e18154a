"""A fabric before it is built: `mrc plan`, arithmetic without a simulation."""
