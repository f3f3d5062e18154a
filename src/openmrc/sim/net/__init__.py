"""The network that all transports share: events, ports, links, switches, messages."""

__all__ = [
    "balance",
    "cross",
    "due",
    "events",
    "health",
    "link",
    "messages",
    "network",
    "parts",
    "room",
    "rounds",
    "routing",
    "scout",
    "state",
    "switch",
]
