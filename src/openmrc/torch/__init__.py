"""torch.distributed over MRC: `init_process_group("mrc")`, in a script that imports nothing of us.

kernels      reductions, compiled
memory       bytes of tensors, by address
shared       ranks of one host: the same in memory that both have
wire         the one function that opens the process's device
pair         the queue pair to a peer: small messages in slots, large ones in place
progress     what is posted, what has come, which operation goes on
algorithms   collectives, as generators over sends and receives
lines        who is alive
world        all ranks of a job, connected by what the torch store says
collectives  the core that both adapters share
work         what a caller waits for
group        `ProcessGroup` of torch 2.13
backend      `Backend` of torch 2.14 and later
register     entry points
"""
