"""The entry points. torch calls them; they import only modules that are already loaded.

2.13 calls every entry point of `torch.backends` at `import torch`: `autoload` only registers the
name. 2.14 and later resolve `torch.distributed.backends` by name. `OPENMRC_AS=gloo` replaces Gloo
by MRC.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

NAME, VARIABLE = "mrc", "OPENMRC_AS"


def autoload() -> None:
    """Make `init_process_group("mrc")` known. Any failure is a warning: `import torch`
    continues.
    """
    try:
        register()
    except Exception as error:
        warnings.warn(f"openmrc: torch.distributed has no backend {NAME!r}: {error}", stacklevel=2)


def register() -> None:
    """Register the backend with torch."""
    import torch.distributed as dist

    if not dist.is_available() or NAME.upper() in dist.Backend._plugins:
        return
    dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda"])
    place = os.environ.get(VARIABLE)
    if place == "gloo":
        _take_gloos_place()
    elif place:
        raise ValueError(f"{VARIABLE} = {place!r}: only gloo can be replaced")


def create(opts: Any, pg_options: Any = None) -> Any:
    """Create a group, by the adapter that this torch needs."""
    import atexit

    from openmrc.torch import backend, group

    atexit.unregister(group.leave_all)
    atexit.register(group.leave_all)
    if backend.wanted():
        return backend.create(opts, pg_options)
    _refuse_others(sys._getframe())
    return group.create(opts, pg_options)


def _refuse_others(frame: Any) -> None:
    """Refuse a map of devices to backends that names others, too: torch 2.13 puts a group in Python
    in the place of all of them, and tells it of none. So its caller's variable is looked at.
    """
    while frame is not None and frame.f_code.co_name != "_new_process_group_helper":
        frame = frame.f_back
    config = frame.f_locals.get("backend_config") if frame is not None else None
    backends = {} if config is None else config.get_device_backend_map()
    if set(backends.values()) > {NAME}:
        from openmrc.errors import InputError

        given = ",".join(f"{device}:{name}" for device, name in backends.items())
        raise InputError(
            f"backend {given!r}: torch {torch_version()} would use {NAME} for all devices; create"
            f" a group for each backend, init_process_group({NAME!r}) and new_group(backend=...),"
            " or use torch 2.14 or later"
        )


def torch_version() -> str:
    """The version of torch, without what it was built for."""
    import torch

    return str(torch.__version__).partition("+")[0]


def _take_gloos_place() -> None:
    """2.14 and later let a built-in name be registered again; 2.13 constructs a class by name."""
    import torch.distributed as dist

    if hasattr(dist.Backend, "_ensure_backend_registered"):
        dist.Backend._ensure_backend_registered("gloo")
        dist.Backend.register_backend("gloo", create, extended_api=True, devices=["cpu", "cuda"])
        return
    from torch.distributed import distributed_c10d

    from openmrc.torch.group import InGloosPlace

    distributed_c10d.ProcessGroupGloo = InGloosPlace
