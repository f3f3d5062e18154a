"""`mrc export`: the configuration at boot of every switch, from the fabric of one scenario file."""
