"""The network that all transports share: events, ports, links, switches, messages."""
