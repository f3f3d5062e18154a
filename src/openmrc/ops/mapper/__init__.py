"""`mrc ops agent` and `mrc ops controller`: agents that probe every link, and the controller that
collects their reports.

`agent` and `collector` are the core: state machines whose inputs are the time and what arrived. The
modules that read clocks and sockets are `live` and `server`.
"""

__all__ = [
    "agent",
    "bursts",
    "collector",
    "command",
    "history",
    "link",
    "node",
    "page",
    "run",
    "tell",
    "words",
]
