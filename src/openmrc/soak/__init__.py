"""Random work in a loop, checked: simulated worlds, and live devices that are killed."""
