"""What a fabric would be, before it is built: `mrc plan`, arithmetic without a simulation."""
