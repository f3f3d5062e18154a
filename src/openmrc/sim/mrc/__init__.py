"""What only a world of MRC has: its NIC, its event loop, its faults, its captures."""
