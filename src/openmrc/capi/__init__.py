"""libmrc: MRC's public C API over the live world, in the process of the program that calls it.

    mrc build-lib --out build/libmrc

compiles two shared libraries from a stub that is generated here: `libmrc.so`, and a small
`libibverbs.so.1` for machines without one. The stub starts Python in the caller's process and asks
`entry` for addresses. Infrequent calls (devices, regions, queues, states) are Python, `objects` and
`devices`; calls for each message (`mrc_post_send`, `mrc_post_recv`, `mrc_poll_cq`) are compiled,
`hot`, and never take the interpreter's lock.

All declarations are data, written from the public descriptions of the API: `layouts` (structures,
numbers), `calls` (functions). C text and NumPy's records are generated from both.
"""

__all__ = [
    "build",
    "calls",
    "command",
    "control",
    "devices",
    "entry",
    "hot",
    "layouts",
    "linked",
    "places",
    "reach",
]
