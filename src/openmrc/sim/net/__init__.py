"""What the packets of every transport cross: events, ports, links, switches, messages."""
