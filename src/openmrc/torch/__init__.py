"""torch.distributed over MRC: `init_process_group("mrc")`, in a script that need not import
openmrc.

kernels      reductions, compiled
memory       bytes of tensors, by address
shared       ranks of one host: the same in shared memory
wire         the one function that opens the process's device
pair         the queue pair to a peer: small messages in slots, large ones in place
streams      a GPU's streams and events, behind a door for tests
staging      tensors of a GPU, by way of pinned memory
callbacks    what applications attach to futures, on threads of its own
call         what an operation is, as its ranks compare it
progress     what is posted, what has arrived, which operation continues
algorithms   collectives, as generators over sends and receives
lines        which ranks are alive
world        all ranks of a job, connected through the torch store
collectives  the core that both adapters share
work         the handle for which a caller waits
overloads    what C++'s methods of a group accept
group        `ProcessGroup` of torch 2.13
backend      `Backend` of torch 2.14 and later
register     entry points
"""

__all__ = [
    "bench",
    "doctor",
]
