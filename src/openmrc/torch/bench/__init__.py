"""`mrc bench torch`: nccl-tests' table of collectives over MRC, with Gloo beside it.

cases       the collectives: what is called, on what, and the expected result
congestion  TCP's congestion control under Gloo
measure     one rank's part: the backends in turn, call by call
training    a small transformer, and its training for a given time
rank        a rank's process
network     hosts as namespaces, joined by planes that can be cut
table       rows for people
picture     step times of a training through cuts
command     the ranks as processes of this machine
"""

__all__ = [
    "command",
]
