"""A controller of NICs over MRC's C API: `mrc ops nic`, an agent for a NIC of any library.

    nic          the 14 functions as a class of Python: what an agent sees of a NIC
    library      that class over a shared library with the symbols of mrc_ctl.h
    agent        one a node: gives the NIC its EVs, hears events, probes, denies; without clock
    plan         the EVs of every NIC of a fabric, planned centrally
    run          an agent in real time, with its link to `mrc ops controller`
    simulated    the class over NICs of a simulated world, with all agents and a controller

Whatever has these 14 methods can be controlled.
"""

__all__ = [
    "command",
]
