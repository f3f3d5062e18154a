"""The endpoint: frames in, frames out, and the thread that runs the engine between them."""

__all__ = [
    "control",
    "host",
    "ip",
    "limits",
    "links",
    "loop",
    "path_mtu",
    "peers",
    "planes",
    "pmtu",
    "state",
    "udp",
    "warmup",
]
