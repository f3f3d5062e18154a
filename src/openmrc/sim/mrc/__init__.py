"""MRC in the simulator: its NIC, event loop, faults and captures."""
