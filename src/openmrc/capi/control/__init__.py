"""The controller's half of MRC's C API: ports, profiles of EVs and of congestion control, events of
EVs, and probes, for the device in the process of the caller.

    layouts      structures and numbers, as data
    formats      what an EV of a profile is in a packet
    states       the states of EVs, which compiled code changes
    profiles     format, EV and CC profiles: their states, and what each accepts
    queues       queues of EV events
    probing      endpoint requests, in batches
    live         what a profile does to the queue pairs of the device
    controller   the functions
"""

__all__ = [
    "controller",
    "formats",
    "layouts",
    "profiles",
    "queues",
    "states",
]
