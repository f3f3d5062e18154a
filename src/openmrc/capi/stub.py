"""The C of both libraries: it starts Python, and passes each call on.

`libmrc.so` asks `openmrc.capi.entry` once for a table of addresses. Each of its functions, and of
`libibverbs.so.1`, is three lines: arguments as 64-bit words to an address of the table, and the
result as `calls` defines it. Those of `COMPILED` are compiled functions, which get the addresses of
their state from the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from openmrc.capi.calls import (
    ABSENT_CALLS,
    CODE,
    CONTROL,
    CTL_CALLS,
    MINUS,
    MRC_CALLS,
    NEGATIVE,
    NOTHING,
    NULL,
    PLAIN,
    VERBS_CALLS,
    Call,
)

ARGUMENTS = 8  # the most of any function
# Of the table: compiled functions, their state, then the others in the order of `CONTROL`.
POST_SEND, POST_RECV, POLL_CQ, MODIFY, ENDPOINT, STATE, WAYS, CALLS, FIRST = range(9)
# The parts of the state that they are given
POSTS, POLLS, MODIFIES = (ENDPOINT, STATE, CALLS), (ENDPOINT, CALLS), (ENDPOINT, STATE, WAYS, CALLS)
WORDS = FIRST + len(CONTROL)

START = r"""
#define _GNU_SOURCE
#include <Python.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include "mrc_ctl.h"

typedef long word;
static word table[WORDS];
static int ready, forked;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The engine's thread, and whoever held Python's lock, stay in the parent: a child of a process
   that has called this library can do nothing with it but be told so. */
static void in_child(void)
{
	forked = 1;
	table[ENDPOINT] = 0;
}

/* Extension modules look for Python's symbols in the process as a whole, and a program may have
   opened this library for itself alone. */
static void make_global(void)
{
	Dl_info where;
	if (dladdr((void *)Py_IsInitialized, &where) && where.dli_fname)
		dlopen(where.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

static int start_python(void)
{
	PyConfig config;
	PyConfig_InitPythonConfig(&config);
	config.install_signal_handlers = 0;
	config.parse_argv = 0;
	PyStatus status = PyConfig_SetBytesString(&config, &config.program_name, PYTHON);
	if (!PyStatus_Exception(status))
		status = PyConfig_SetBytesString(&config, &config.executable, PYTHON);
	if (!PyStatus_Exception(status))
		status = Py_InitializeFromConfig(&config);
	PyConfig_Clear(&config);
	if (PyStatus_Exception(status))
		fprintf(stderr, "libmrc: Python does not start: %s\n", status.err_msg);
	return !PyStatus_Exception(status);
}

static void fill(void)
{
	PyObject *path = PySys_GetObject("path"), *place = PyUnicode_FromString(PACKAGE);
	if (path && place)
		PyList_Insert(path, 0, place);
	Py_XDECREF(place);
	PyObject *module = PyImport_ImportModule("openmrc.capi.entry");
	PyObject *done = NULL;
	if (module)
		done = PyObject_CallMethod(module, "fill", "li", (word)table, WORDS);
	if (!done)
		PyErr_Print();
	ready = done && PyObject_IsTrue(done);
	Py_XDECREF(done);
	Py_XDECREF(module);
}

/* A thread keeps its Python state from its first call to its end: to make one for each call
   takes 20 us, and maps memory each time. */
static pthread_key_t kept;

static void drop(void *state)
{
	if (forked || !Py_IsInitialized())
		return;
	PyEval_RestoreThread(state);
	PyThreadState_Clear(state); /* by name: at its end a thread has lost its own */
	PyThreadState_DeleteCurrent();
}

static void keep(void)
{
	if (PyGILState_GetThisThreadState())
		return;
	PyGILState_Ensure();
	pthread_setspecific(kept, PyEval_SaveThread());
}

static void start(void)
{
	make_global();
	pthread_atfork(NULL, NULL, in_child);
	pthread_key_create(&kept, drop);
	if (Py_IsInitialized()) {
		PyGILState_STATE held = PyGILState_Ensure();
		fill();
		PyGILState_Release(held);
	} else if (start_python()) {
		fill();
		PyEval_SaveThread();
	}
}

/* Why no call can be made, as -errno, or 0. */
__attribute__((visibility("default")))
word openmrc_absent(void)
{
	if (forked)
		return -ENODEV;
	pthread_once(&once, start);
	return ready ? 0 : -ENOSYS;
}

__attribute__((visibility("default")))
word openmrc_call(int which, word a, word b, word c, word d, word e, word f, word g, word h)
{
	typedef word (*control)(word, word, word, word, word, word, word, word);
	word absent = openmrc_absent();
	if (absent)
		return absent;
	keep();
	return ((control)table[FIRST + which])(a, b, c, d, e, f, g, h);
}
"""


def mrc_c(python: str, package: str) -> str:
    """The source of `libmrc.so`, for this Python and the package below this directory."""
    named = f"#define PYTHON {_quoted(python)}\n#define PACKAGE {_quoted(package)}\n"
    numbers = f"#define WORDS {WORDS}\n#define FIRST {FIRST}\n#define ENDPOINT {ENDPOINT}\n"
    calls = (*MRC_CALLS, *CTL_CALLS)
    functions = [COMPILED.get(call.name, _passed)(call) for call in calls]
    return named + numbers + START + "\n".join(functions)


def verbs_c() -> str:
    """The source of `libibverbs.so.1`."""
    head = (
        "#include <errno.h>\n#include <infiniband/verbs.h>\n\ntypedef long word;\n"
        f"word openmrc_call(int{', word' * ARGUMENTS});\n"
        "word openmrc_absent(void);\n\n"
    )
    return head + "\n".join([*map(_passed, VERBS_CALLS), *map(_missing, ABSENT_CALLS)])


def verbs_map() -> str:
    """The versions of the symbols of `libibverbs.so.1`, for the linker."""
    by_version: dict[str, list[str]] = {"1.0": []}
    for call in (*VERBS_CALLS, *ABSENT_CALLS):
        by_version.setdefault(call.version, []).append(call.name)
    text, before = "", ""
    for version in sorted(by_version, key=lambda one: tuple(map(int, one.split(".")))):
        names = "".join(f" {name};" for name in by_version[version])
        inside = f" global:{names}" if names else ""
        text += f"IBVERBS_{version} {{{inside}{'' if before else ' local: *;'} }}{before};\n"
        before = f" IBVERBS_{version}"
    return text


def _asked(call: Call) -> str:
    """The call of Python."""
    given = [f"(word){name}" for _, name in call.parameters]
    given += ["0"] * (ARGUMENTS - len(given))
    return f"openmrc_call({CONTROL.index(call.name)}, {', '.join(given)})"


def _passed(call: Call) -> str:
    """A function implemented in Python."""
    asked = _asked(call)
    if call.answers == PLAIN:  # it has no way to fail
        instead = '(word)"unknown"' if call.result.endswith("*") else "0"
        asked = f"openmrc_absent() ? {instead} : {asked}"
    return _function(call, asked)


def _called(call: Call, place: int, state: tuple[int, ...], more: tuple[str, ...] = ()) -> str:
    """The call of a compiled function in the table, with parts of the state."""
    given = [f"table[{index}]" for index in state]
    given += [*more, *(f"(word){name}" for _, name in call.parameters)]
    kind = f"word (*)({', '.join(['word'] * len(given))})"
    return f"(({kind})table[{place}])({', '.join(given)})"


def _hot(place: int, state: tuple[int, ...], sign: str = "-") -> Callable[[Call], str]:
    """A function implemented in compiled code: it returns an errno, or what `sign` says."""

    def write(call: Call) -> str:
        called = f"{sign}{_called(call, place, state)}"
        # without a device no handle is valid
        return _function(call, f"table[{ENDPOINT}] ? {called} : forked ? -ENODEV : -EINVAL")

    return write


def _modify(call: Call) -> str:
    """A function whose common case is compiled: 0 if it is done, and all else is for Python."""
    done = _called(call, MODIFY, MODIFIES, ("(word)room",))
    answer = f"table[{ENDPOINT}] && !{done} ? 0 : {_asked(call)}"
    return _function(call, answer, "\tword room[4];\n")


COMPILED = {
    "mrc_post_send": _hot(POST_SEND, POSTS),
    "mrc_post_recv": _hot(POST_RECV, POSTS),
    "mrc_poll_cq": _hot(POLL_CQ, POLLS, ""),
    "mrc_ctl_modify_ev_profile": _modify,
}


def _missing(call: Call) -> str:
    """A function of ibverbs that is not implemented."""
    return _function(call, "-EOPNOTSUPP")


def _function(call: Call, answer: str, room: str = "") -> str:
    lines = [f"{room}\tword answer = {answer};", "\tif (answer < 0)\n\t\terrno = -(int)answer;"]
    failed = {CODE: "-(int)answer", MINUS: "-1", NULL: "0", NEGATIVE: "(int)answer"}
    if call.answers in failed:
        good = "0" if call.answers == CODE else f"({call.result})answer"
        lines.append(f"\treturn answer < 0 ? {failed[call.answers]} : {good};")
    elif call.answers != NOTHING:
        lines = [f"\treturn ({call.result}){answer};"]
    body = "\n".join(lines)
    shown = '__attribute__((visibility("default"))) '
    return f"#undef {call.name}\n{shown}{call.prototype}\n{{\n{body}\n}}\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def sources(python: str, package: str) -> Iterable[tuple[str, str]]:
    """Every file that is compiled, or read by the linker: its name and text."""
    return (
        ("libmrc.c", mrc_c(python, package)),
        ("libibverbs.c", verbs_c()),
        ("libibverbs.map", verbs_map()),
    )
