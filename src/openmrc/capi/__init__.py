"""libmrc: MRC's public C API over the live world, in the process of the program that calls it.

    mrc build-lib --out build/libmrc

compiles two shared libraries from a stub that is generated here: `libmrc.so`, and a small
`libibverbs.so.1` for machines without one. The stub starts Python in the caller's process and asks
`entry` for addresses. What a program does seldom (devices, regions, queues, states) is Python,
`control`; what it does for each message (`mrc_post_send`, `mrc_post_recv`, `mrc_poll_cq`) is
compiled, `hot`, and never takes the interpreter's lock.

All declarations are data, written from the public descriptions of the API: `layouts` (structures,
numbers), `calls` (functions). C text and NumPy's records follow both.
"""
