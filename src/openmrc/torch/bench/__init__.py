"""`mrc bench torch`: nccl-tests' table of collectives over MRC, with Gloo beside it.

cases    the collectives: what is called, on what, and what must come out
measure  one rank's part: both backends in turn, call by call
table    rows for people
command  the ranks as processes of this machine
"""
