"""`mrc mapper` and `mrc controller`: agents that probe every link, and who hears them all.

`agent` and `collector` are the core: state machines that are told the time and what arrived. What
reads clocks and sockets stands beside them, in `live` and `server`.
"""
