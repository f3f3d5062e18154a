"""C headers, generated from the declarations: `mrc.h`, `mrc_ctl.h` and the part of
`infiniband/verbs.h` that they need.

They are for programs that have no others; programs with their own headers are compiled against
those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from openmrc.capi import layouts
from openmrc.capi.calls import CTL_CALLS, MRC_CALLS, VERBS_CALLS, Call
from openmrc.capi.control import layouts as control
from openmrc.capi.layouts import Struct

DIRECT = """
static inline int ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
\tstruct ibv_gid_entry *entry, uint32_t flags)
{
\treturn _ibv_query_gid_ex(context, port, index, entry, flags, sizeof *entry);
}
"""


def verbs_h() -> str:
    """`infiniband/verbs.h`."""
    return _page(
        "OPENMRC_VERBS_H",
        "What programs for MRC take from ibverbs: devices, memory, requests and completions.",
        "#include <errno.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>",
        layouts.VERBS_ENUMS,
        layouts.VERBS_STRUCTS,
        VERBS_CALLS,
        "".join(f"#define {name} {value}\n" for name, value in layouts.LINK_LAYERS.items()),
        DIRECT,
    )


def mrc_h() -> str:
    """`mrc.h`."""
    current, oldest = layouts.API_VERSION, layouts.API_OLDEST
    numbers = (
        "#define MRC_API_VER(major, minor, below) ((major) << 24 | (minor) << 16 | (below))\n"
        f"#define MRC_API_CURRENT_VERSION {current:#x}\n"
        f"#define MRC_API_LAST_SUPPORTED_VERSION {oldest:#x}\n"
        f"#define MRC_MAX_VENDOR_CFG_SIZE {layouts.VENDOR_BYTES}\n"
    )
    handles = "".join(f"struct {name};\n" for name in layouts.HANDLES)
    return _page(
        "OPENMRC_MRC_H",
        "MRC's C API, as openmrc's libmrc.so has it.",
        "#include <infiniband/verbs.h>",
        layouts.MRC_ENUMS,
        layouts.MRC_STRUCTS,
        MRC_CALLS,
        numbers + handles,
    )


def mrc_ctl_h() -> str:
    """`mrc_ctl.h`."""
    numbers = (
        "#define MRC_CTL_API_VER(major, minor, below) ((major) << 24 | (minor) << 16 | (below))\n"
        f"#define MRC_CTL_API_CURRENT_VERSION {control.API_VERSION:#x}\n"
        f"#define MRC_CTL_API_LAST_SUPPORTED_VERSION {control.API_OLDEST:#x}\n"
        f"#define MRC_CTL_MAX_VENDOR_CFG_SIZE {layouts.VENDOR_BYTES}\n"
        f"#define MRC_CTL_EV_MAX_BYTES {control.EV_BYTES}\n"
        "#define MRC_CTL_EV_UNPOPULATED ((struct mrc_ctl_ev){ .val = { 0 }, .port = 0 })\n"
    )
    return _page(
        "OPENMRC_MRC_CTL_H",
        "The controller's half of MRC's C API, as openmrc's libmrc.so has it.",
        "#include <mrc.h>",
        control.ENUMS,
        control.STRUCTS,
        CTL_CALLS,
        numbers,
    )


def _page(
    guard: str,
    words: str,
    includes: str,
    enums: Mapping[str, Mapping[str, int]],
    structs: Iterable[Struct],
    calls: Iterable[Call],
    numbers: str,
    after: str = "",
) -> str:
    parts = [f"/* {words} Written by `mrc build-lib`. */", f"#ifndef {guard}\n#define {guard}"]
    parts += [includes, '#ifdef __cplusplus\nextern "C" {\n#endif', numbers.strip()]
    for name, values in enums.items():
        rows = ",\n".join(f"\t{key} = {_number(value)}" for key, value in values.items())
        parts.append(f"enum {name} {{\n{rows}\n}};")
    others = () if structs is layouts.VERBS_STRUCTS else layouts.VERBS_STRUCTS
    ordered = [one for one in _ordered(structs) if one not in others]
    parts.append("\n".join(f"{one.word} {one.name};" for one in ordered))
    parts += [f"{one.text};" for one in ordered]
    parts.append("\n".join(f"{call.prototype};" for call in calls))
    parts += [after.strip()] if after else []
    parts.append("#ifdef __cplusplus\n}\n#endif\n#endif")
    return "\n\n".join(parts) + "\n"


def _number(value: int) -> str:
    return f"(int){value & 0xFFFFFFFF:#x}" if value < -1 else str(value)


def _ordered(structs: Iterable[Struct]) -> list[Struct]:
    """Sort structures: each after those that it contains."""
    known: list[Struct] = []

    def place(one: Struct) -> None:
        for kind, *_ in one.rows:
            if isinstance(kind, Struct):
                place(kind)
        if one.name and one not in known:
            known.append(one)

    for one in structs:
        place(one)
    return known
