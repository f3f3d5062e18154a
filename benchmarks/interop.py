"""Programs of others over libmrc, between two hosts of a lab: none of them is in this repository.

Each part runs where the directory or file that it takes is named, as an option or as a variable of
`make interop`; fetching and building is the reader's.

    OCP        a checkout of opencomputeproject/OCP-Multipath-Reliable-Connection: its headers,
               `mrc_test.c` and `mrc_example.c`, unmodified; what it receives it compares itself;
               `ev_expansion.c`, whose every EV is expanded by openmrc, too; and the code of its
               pages for controllers, as far as it compiles against its own header
    SHIM       the shared library built from microsoft/mrc-verbs-shim-lib
    PERFTEST   `ib_write_bw`, built from linux-rdma/perftest; runs over SHIM, and a plane is cut
    NCCL       a checkout of microsoft/mrc-nccl-plugin: the functions that it calls are looked up
    FRR        where FRR 10.5 or newer is installed (`interop_frr.py`): its daemons switch a fabric
    VERBS      directories of rdma-core's headers, with commas, such as the `build/include` that its
               `build.sh` makes; else openmrc's own are used

    .venv/bin/python benchmarks/interop.py --ocp ../OCP-Multipath-Reliable-Connection
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import interop_frr
from openmrc.capi import build, hot
from openmrc.capi.control import formats
from openmrc.errors import InputError
from openmrc.fabric.clos import multiplane
from openmrc.verbs.cabled import prepare
from openmrc.wire import addresses

ROOT = Path(__file__).resolve().parents[1]
LAB = ROOT / "examples/lab/linux.toml"
NAME = "interop"
MRC = [sys.executable, "-m", "openmrc.cli"]
PORT = 18_333
CUT = "plane 1 t0 *"
CUT_AFTER_S, READY_S = 4.0, 8.0
PATIENCE_S = 300
EXAMPLE = f"-d mrc0 -p {PORT} -m 4096 --min-size=1024 --step-factor=16"
WRITE_BW = f"-d mrc0 -x 0 -m 4096 -s 65536 -F -p {PORT}"


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, sys.path))
    return {**os.environ, "PYTHONPATH": path, "OPENMRC_LOG": "text", **more}


def between_two_hosts(program: str, words: str, more: str, cut: bool, **variables: str) -> str:
    """What a server on one host and a client on another print; `more` is for both, too.

    The client starts once the server has had time to open its device. With `cut` a plane of the
    fabric goes silent while they run.
    """
    given = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    command = f"env {given} {shlex.quote(program)} {words} {more}"
    both = (
        f"if [ $OPENMRC_RANK = 0 ]; then exec {command};"
        f" else sleep {READY_S:g}; exec {command} ${{OPENMRC_HOSTS%%,*}}; fi"
    )
    lab = [*MRC, "lab", str(LAB), "--name", NAME, "--hosts", "0,7", "--", "sh", "-c", both]
    with subprocess.Popen(
        lab, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        if cut:
            time.sleep(READY_S + CUT_AFTER_S)
            fail = [*MRC, "lab", "fail", CUT, "--name", NAME]
            subprocess.run(fail, stdout=subprocess.DEVNULL, check=True)
        said, _ = running.communicate(timeout=PATIENCE_S)
    if running.returncode:
        raise SystemExit(f"{program}: exit status {running.returncode}\n{said}")
    return said


def compiled(out: Path, libraries: Path, sources: list[Path], includes: list[Path]) -> str:
    """A program of others, unmodified, linked with libmrc."""
    words = [build.compiler(), "-O2", "-w", "-D_GNU_SOURCE"]
    words += [word for one in includes for word in ("-I", str(one))]
    words += [*map(str, sources), "-o", str(out), "-L", str(libraries)]
    words += ["-lmrc", "-libverbs", "-lm", f"-Wl,-rpath,{libraries}"]
    if subprocess.run(words, check=False).returncode:
        raise SystemExit(f"{sources[0]}: does not compile against {', '.join(map(str, includes))}")
    return str(out)


# OCP's pages for controllers, with what must be put in place of a page's own words so that it can
# run in a lab at all: a misspelt name, a variable that is read before it is set, addresses, and
# EVs that name paths; and the names of today's `mrc_ctl.h`, where a page has those of January 2026.
FROM, TO = 0, 7
FABRIC = multiplane(8, 4, 200_000_000, 4, 2, 0, 0)  # of `LAB`
ON_A_PC = [
    f"{int.from_bytes(FABRIC.ev_of_path(FROM, TO, 0, i).to_bytes(4, 'big'), 'little'):#010x}"
    for i in range(2)
]
ONE_ENTRY = ".ev_op.entry_count = 1, .ev_op.entries = &(struct mrc_ctl_ev_op_entry){ .ev"
FIELDS = "MRC_CTL_EV_PROFILE_EV_FIELDS_OP"
SINCE_JANUARY = (
    (".fmt_fields.fmt_field", ".fmt_field"),
    (".ev_op.modify_ev_state.ev", ONE_ENTRY),
    (".ev_op.modify_ev_state.state = MRC_CTL_EV_DENIED", ".state = MRC_CTL_EV_DENIED }"),
    (".ev_op.query_ev_array.ev", ".ev_op.entry_count = ev_count, .ev_op.entries"),
    ("struct mrc_ctl_ev *ev_array", "struct mrc_ctl_ev_op_entry *ev_array"),
    ("ev_array[i]", "ev_array[i].ev"),
    ("ev_profile_attr.ev_count", "ev_count"),  # it is overwritten before it is read
)
PAGES: dict[str, tuple[tuple[str, str], ...]] = {
    "mrc_ctl_ev_events": (
        ("int i, num_events", "int i = 0, num_events"),
    ),  # no event: it reads [i]
    "mrc_ctl_ev_probes": (
        ("ep_rsqs", "ep_rsps"),
        ('"10.0.0.1"', f'"{addresses.ipv6(FROM, 0)}"'),
        ('"10.0.0.2"', f'"{addresses.ipv6(TO, 0)}"'),
        ('"10.0.0.3"', f'"{addresses.ipv6(TO, 0)}"'),
        ("0x12345678", ON_A_PC[0]),
        ("0x87654321", ON_A_PC[1]),
        ("ep_reqs, 2, 2000000,", "ep_reqs, 2, 200000000,"),  # ns: a lab's hosts share two cores
    ),
    "mrc_ctl_exp_ev": (
        *SINCE_JANUARY,
        (".ev_op.replace_ev.cur_ev", ONE_ENTRY),
        (".ev_op.replace_ev.new_ev", ".ev_new"),
        (".ev_op.replace_ev.all_copies = 0", ".state = MRC_CTL_EV_GOOD }"),
    ),
    "mrc_ctl_gen_ev": (
        *SINCE_JANUARY,
        (".ev_op.fields.", ".ev_fields_op."),
        (".ev_op.op = MRC_CTL_EV_OP_MODIFY_F", ".ev_fields_op.op = MRC_CTL_EV_FIELDS_OP_MODIFY_F"),
        (".ev_op.op = MRC_CTL_EV_OP_QUERY_F", ".ev_fields_op.op = MRC_CTL_EV_FIELDS_OP_QUERY_F"),
        ("EVENT_MASK |\n             MRC_CTL_EV_PROFILE_EV_OP", f"EVENT_MASK | {FIELDS}"),
        (
            "query_field_count,\n};\n\nattr_mask = MRC_CTL_EV_PROFILE_EV_OP",
            f"query_field_count,\n}};\n\nattr_mask = {FIELDS}",
        ),
        ("field_cound", "field_count"),
        ("free(ev_array)", "(void)ev_array"),  # twice, and read after it
    ),
}
NOT_HERE = "\n## Working with SRv6"  # a format that the device does not offer


def pages(libraries: Path, checkout: Path, includes: list[Path]) -> None:
    """The code of OCP's pages for controllers, as far as formats that the device offers go."""
    for name, changes in PAGES.items():
        text, _, left = (checkout / f"examples/{name}.md").read_text().partition(NOT_HERE)
        blocks = re.findall(r"^```c\n(.*?)^```", text, re.M | re.S)
        code = "".join(f"{{\n{block}" for block in blocks) + "}" * len(blocks)  # names come again
        for old, new in changes:
            if old not in code:
                raise SystemExit(f"{name}.md: no {old!r}")
            code = code.replace(old, new)
        page, out = libraries / f"{name}.inc", libraries / name
        page.write_text(code)
        words = [build.compiler(), "-std=gnu11", "-w", f'-DPAGE="{page}"']
        words += [word for one in includes for word in ("-I", str(one))]
        words += [str(ROOT / "benchmarks/interop_controller.c"), "-o", str(out)]
        words += ["-L", str(libraries), "-lmrc", "-libverbs", f"-Wl,-rpath,{libraries}"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            wrong = re.findall(r"error: (.*)", done.stderr)
            print(f"{name}.md: {len(wrong)} errors against OCP's own header, as: {wrong[0]}")
            continue
        said = between_two_hosts(str(out), "", "", False)
        shown = len(re.findall(r"^h0\| (?:Probe Response:|EV\[)", said, re.M))
        ended = re.findall(r"^h0\| page ended at line (\d+)", said, re.M)
        if ended != ["0"]:
            raise SystemExit(said)
        where = "to the part on SRv6" if left else "to its end"
        print(f"{name}.md with {len(changes)} changes runs {where}", end="")
        print(f", and shows {shown} EVs or answers")


def expansion(libraries: Path, checkout: Path) -> None:
    """`ev_expansion.c`: each EV that it expands is expanded to the same by openmrc."""
    out = libraries / "ev_expansion"
    source = checkout / "examples/ev_expansion/ev_expansion.c"
    subprocess.run([build.compiler(), "-w", str(source), "-o", str(out)], check=True)
    said = subprocess.run([out], capture_output=True, text=True, check=True).stdout
    n = 0
    for part in said.split("\nev_fmt_prof:\n")[1:]:
        form, _, rest = part.partition("\nev_prof:\n")
        own, _, expanded = rest.partition("\nEXPANDED EVs:\n")
        widths = [int(width) for width in re.findall(r"width=(\d+)", form)]
        rows = re.findall(r"width=(\d+), init_val=(\w+), min=(\w+) max=(\w+) mask=(\w+)", own)
        fields = [formats.Field(*(int(value, 0) for value in row)) for row in rows]
        evs = [formats.Ev(bytes.fromhex(ev), 1) for ev in re.findall(r": 0x(\w{64})", own)]
        theirs = re.findall(r"^ +0x(\w{64})", expanded, re.M)
        for ev, found in zip(evs, theirs, strict=True):
            ours = formats.expanded(ev, widths, fields, formats.EV_BITS)
            if f"{ours:064x}" != found:
                raise SystemExit(f"EV {ev.value.hex()}: {ours:064x}, and OCP's is {found}")
            n += 1
    print(f"ev_expansion.c: {n} EVs, expanded alike")


def ocp(libraries: Path, checkout: Path, verbs: list[Path]) -> None:
    """OCP's own programs, against OCP's own headers."""
    includes = [*verbs, checkout] if verbs else [checkout, libraries / "include"]
    test = compiled(libraries / "mrc_test", libraries, [checkout / "test/mrc_test.c"], includes)
    inside = environment(OPENMRC_INTERFACES="127.0.12.1")
    inside.pop("OPENMRC_HOST", None)
    subprocess.run([test, "-d", "mrc0"], env=inside, check=True)
    expansion(libraries, checkout)
    pages(libraries, checkout, includes)
    folder = checkout / "examples/benchmark"
    sources = [folder / "mrc_example.c", folder / "utils.c"]
    example = compiled(libraries / "mrc_example", libraries, sources, includes)
    for cut, words in (
        (False, "-s 1048576 -n 100"),
        (True, "-s 1048576 --min-size=1048576 -n 900"),
    ):
        said = between_two_hosts(example, EXAMPLE, words, cut, MRC_LOG_LEVEL="DEBUG")
        rows = re.findall(r"^h7\| +(\d+) +(\d+) +([\d.]+) +[\d.]+ *$", said, re.M)
        passed = said.count("Data validation passed")
        print(f"mrc_example{', plane cut' if cut else ''}: {passed} of {len(rows)} sizes verified")
        for size, times, gbps in rows:
            print(f"  {times} x {size} bytes: {gbps} Gb/s")
        if not rows or passed != len(rows):
            raise SystemExit(said)


def perftest(libraries: Path, program: Path, shim: Path) -> None:
    """perftest over the shim, while a plane is cut; what one end sent is what the other one has."""
    sums = libraries / "sums.so"
    words = [
        build.compiler(),
        "-shared",
        "-fPIC",
        "-I",
        str(libraries / "include"),
        "-o",
        str(sums),
    ]
    subprocess.run([*words, str(ROOT / "benchmarks/interop_sums.c"), "-ldl"], check=True)
    variables = {
        "LD_PRELOAD": f"{sums}:{shim.resolve()}",
        "LD_LIBRARY_PATH": str(libraries),
        "VMRC_LIBMRC_SO": str(libraries / build.LIBMRC),
        "VMRC_LIBIBVERBS_SO": str(libraries / build.LIBIBVERBS),
    }
    for cut, more in ((False, "-n 1000"), (True, "-n 10000")):
        said = between_two_hosts(str(program.resolve()), WRITE_BW, more, cut, **variables)
        rows = re.findall(r"^h7\| +65536 +(\d+) +[\d.]+ +([\d.]+)", said, re.M)
        sent = re.findall(r"^h7\| sums of 65536 bytes: sent (\w+)", said, re.M)
        received = re.findall(r"^h0\| sums of 65536 bytes: .* received (\w+)", said, re.M)
        if len(rows) != 1 or not sent or sent != received:
            raise SystemExit(said)
        times, rate = rows[0]
        name = f"ib_write_bw{', plane cut' if cut else ''}"
        print(f"{name}: {times} x 65536 bytes, {rate} MiB/s; {sent[0]} at both ends")


def nccl(libraries: Path, checkout: Path) -> None:
    """Every function of MRC's API that the plug-in calls is in libmrc."""
    text = "".join(path.read_text() for path in sorted((checkout / "src").glob("*.c")))
    called = set(re.findall(r"(?<![\w.>])(mrc_\w+)\(", text))
    shown = subprocess.run(
        ["nm", "-D", "--defined-only", libraries / build.LIBMRC],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    missing = {name for name in called if f" T {name}\n" not in shown}
    print(f"NCCL plug-in: {len(called) - len(missing)} of {len(called)} functions resolve")
    if missing:
        raise SystemExit(f"missing: {', '.join(sorted(missing))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("ocp", "shim", "perftest", "nccl", "frr"):
        parser.add_argument(f"--{name}", type=Path, metavar="PATH")
    parser.add_argument("--verbs", metavar="DIR,DIR")
    given = parser.parse_args()
    if not (given.ocp or given.perftest or given.nccl or given.frr):
        parser.error("nothing to check: name --ocp, --perftest with --shim, --nccl, or --frr")
    if bool(given.perftest) != bool(given.shim):
        parser.error("--perftest and --shim: both or none")
    prepare()
    if given.frr:
        try:
            interop_frr.frr(given.frr)
        except InputError as error:
            parser.error(str(error))
    if not (given.ocp or given.perftest or given.nccl):
        return
    hot.warm_up()
    with tempfile.TemporaryDirectory() as folder:
        libraries = Path(folder)
        build.build(libraries)
        if given.nccl:
            nccl(libraries, given.nccl)
        if given.ocp:
            verbs = [Path(one) for one in given.verbs.split(",")] if given.verbs else []
            ocp(libraries, given.ocp, verbs)
        if given.perftest:
            perftest(libraries, given.perftest, given.shim)


if __name__ == "__main__":
    main()
