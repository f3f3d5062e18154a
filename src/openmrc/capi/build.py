"""Compiles the two libraries."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from openmrc.capi import header, stub
from openmrc.errors import InputError, OpenMrcError, OutputError

COMPILERS = ("cc", "gcc", "clang")
OPTIONS = ["-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra"]
ASAN = ("-g", "-O1", "-fsanitize=address", "-fno-omit-frame-pointer")
LIBMRC, LIBIBVERBS = "libmrc.so", "libibverbs.so.1"


def compiler() -> str:
    """Return the C compiler; `InputError` with what to install if there is none."""
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if found is None:
        raise InputError("no C compiler: cc, gcc or clang is needed; type: sudo apt install gcc")
    return found


def sanitizer(name: str = "asan") -> str:
    """Return a sanitizer's library; AddressSanitizer's a program that loads `ASAN` code must load
    first. `InputError` if there is none.
    """
    words = [compiler(), f"-print-file-name=lib{name}.so"]
    found = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(found).is_absolute():
        raise InputError(f"no lib{name}.so; type: sudo apt install libasan8 libubsan1")
    return found


def python_library() -> tuple[Path, Path, str]:
    """Of this Python: the directories of Python.h and of its shared library, and the library's
    name.

    `InputError` if there is none: a program cannot embed an interpreter without a shared library.
    """
    included = Path(sysconfig.get_paths()["include"])
    if not (included / "Python.h").exists():
        raise InputError(f"{included}/Python.h: missing; type: sudo apt install python3-dev")
    name = f"libpython{sysconfig.get_config_var('LDVERSION')}.so"
    directories = [sysconfig.get_config_var(key) for key in ("LIBDIR", "LIBPL")]
    for directory in filter(None, directories):
        if (Path(directory) / name).exists():
            return included, Path(directory), name
    raise InputError(
        f"{name}: this Python ({sys.executable}) has no shared library; use one built with"
        " --enable-shared, or type: sudo apt install python3-dev"
    )


def build(out: Path, extra: tuple[str, ...] = ()) -> list[Path]:
    """Write headers and sources below `out`, and compile both libraries; return the files created.

    `extra` are further options of the compiler.
    """
    cc = compiler()
    included, directory, name = python_library()
    package = str(Path(__file__).resolve().parents[2])
    headers = out / "include"
    try:
        (headers / "infiniband").mkdir(parents=True, exist_ok=True)
        (headers / "mrc_ctl.h").write_text(header.mrc_ctl_h(), encoding="utf-8")
        (headers / "mrc.h").write_text(header.mrc_h(), encoding="utf-8")
        (headers / "infiniband/verbs.h").write_text(header.verbs_h(), encoding="utf-8")
        for file, text in stub.sources(sys.executable, package):
            (out / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(out, error) from None
    python = ["-L", str(directory), f"-l{name[3:-3]}", f"-Wl,-rpath,{directory}"]
    common = [cc, *OPTIONS, *extra, "-I", str(headers)]
    made = [out / LIBMRC, out / LIBIBVERBS]
    _run([*common, "-isystem", str(included), "-o", str(made[0]), f"-Wl,-soname,{LIBMRC}",
          str(out / "libmrc.c"), *python, "-lpthread", "-ldl"])  # fmt: skip
    _run([*common, "-o", str(made[1]), f"-Wl,-soname,{LIBIBVERBS}",
          f"-Wl,--version-script={out / 'libibverbs.map'}", str(out / "libibverbs.c"),
          "-L", str(out), "-lmrc", "-Wl,-rpath,$ORIGIN"])  # fmt: skip
    link = out / "libibverbs.so"  # for `-libverbs`
    link.unlink(missing_ok=True)
    link.symlink_to(LIBIBVERBS)
    return made


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OpenMrcError(f"{command[0]} does not compile the libraries: {done.stderr[:500]}")
