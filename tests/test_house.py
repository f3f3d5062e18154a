"""The house that CONTRIBUTING describes: its rooms, who may import whom, where rules come from."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/openmrc"
FILES = sorted(PACKAGE.rglob("*.py"))
TOP = (99,)  # of the package itself: `import openmrc` offers what stands in its rooms
CLOCKS_AND_CHANCE = {
    "time",
    "datetime",
    "socket",
    "random",
    "secrets",
    "os",
    "sys",
    "threading",
    "asyncio",
}


def name_of(path: Path) -> str:
    """A module's name within the package: "sim.net.link"; of a package that of its folder."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


# --- the table


@dataclass(frozen=True)
class Room:
    """A row of CONTRIBUTING's table: a folder with all its files; "" for files of the hall."""

    name: str
    floor: tuple[int, ...]


def table() -> tuple[dict[str, Room], dict[str, Room]]:
    """The rooms by the name of their folder, and the files of the hall."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    folders: dict[str, Room] = {}
    hall: dict[str, Room] = {}
    for floor, names in re.findall(r"^\| ([\d.]+) \| (`.*`) \| .* \|$", text, re.M):
        for name in re.findall(r"`(.*?)`", names):
            folder = name.removesuffix("/").replace("/", ".") if name.endswith("/") else ""
            into, key = (folders, folder) if folder else (hall, name)
            assert key not in into, f"{key} stands in the table twice"
            into[key] = Room(folder, tuple(map(int, floor.split("."))))
    return folders, hall


FOLDERS, HALL = table()


def room_of(module: str) -> Room:
    """The room of a module, or that of a package: the innermost folder's."""
    if module in HALL:
        return HALL[module]
    while module and module not in FOLDERS:
        module = module.rpartition(".")[0]
    return FOLDERS[module] if module else Room("", TOP)


def test_every_folder_and_every_file_of_the_hall_stands_in_the_table_and_nothing_else_does() -> (
    None
):
    folders = {name for name, path in MODULES.items() if path.stem == "__init__" and name}
    files = {name for name in MODULES if name and "." not in name} - folders
    assert set(FOLDERS) == folders
    assert set(HALL) == {name for name in files if not name.startswith("__")}


# --- the walks


def names_in(path: Path) -> set[str]:
    """Functions, classes and constants that a file defines, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id for each in targets if isinstance(each, ast.Name)}
    return found


def test_what_the_architecture_names_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*/?)(?:\.(\w+))?`", text)
    asked = [(place, name) for place, name in named if "/" in place]
    assert len(asked) > 60
    wrong = []
    for place, name in asked:
        root = ROOT if place.partition("/")[0] in {"src", "tests", "benchmarks"} else PACKAGE
        path = root / place if place.endswith("/") else root / f"{place}.py"
        if not path.exists() or (name not in ("", "py") and name not in names_in(path)):
            wrong.append(f"{place}.{name}")
    assert wrong == []


# --- imports


def imported(path: Path) -> set[str]:
    """All modules of the package that a file imports, wherever in it; annotations included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            inner = {name for name in whole if name.removeprefix("openmrc.") in MODULES}
            found |= inner | ({str(node.module)} if inner != whole else set())
    return {
        name.removeprefix("openmrc").removeprefix(".")
        for name in found
        if name.partition(".")[0] == "openmrc"
    }


@cache
def edges() -> dict[str, set[str]]:
    return {name: imported(path) for name, path in MODULES.items()}


def may_import(module: str, other: str) -> bool:
    """Downwards; within a room; and between a room and one within it on the same floor."""
    mine, its = room_of(module), room_of(other)
    house, guest = mine.name.partition(".")[0], its.name.partition(".")[0]
    if its.floor == mine.floor and house == guest:
        return (
            mine.name == its.name
            or its.name.startswith(f"{mine.name}.")
            or mine.name.startswith(f"{its.name}.")
        )
    if its.floor[0] == mine.floor[0]:
        return house == guest and its.floor < mine.floor
    return its.floor < mine.floor


@pytest.mark.parametrize(
    ("module", "other", "may"),
    [
        ("engine.loss", "jit.byref", True),
        ("jit.byref", "engine.loss", False),
        ("engine.loss", "fabric.model", False),
        ("planning.table", "units", True),
        ("planning.table", "jit.cache", False),
        ("sim.world", "sim.mrc.side", True),
        ("sim.mrc.side", "sim.world", False),
        ("sim.mrc.side", "sim.roce.side", False),
        ("sim.watch.books", "sim.net.state", True),
        ("sim.net.state", "sim.watch.books", False),
        ("sim.world", "live.memory", False),
        ("live.lab.lab", "sim.net.state", False),
        ("live.endpoint.loop", "live.switch.loop", False),
        ("live.lab.lab", "live.switch.loop", True),
        ("live.endpoint.loop", "live.memory", True),
        ("wire.readers", "wire.roce.view", True),
        ("wire.roce.view", "wire.view", True),
        ("cli.__main__", "sweeps.plan", True),
        ("sweeps.plan", "", False),
    ],
)
def test_who_may_import_whom(module: str, other: str, may: bool) -> None:
    assert may_import(module, other) is may


def test_imports_go_down_only() -> None:
    found = {
        (module, other)
        for module, others in edges().items()
        for other in others
        if not may_import(module, other)
    }
    assert found == set()


def circles() -> set[frozenset[str]]:
    """Groups of modules each of which reaches all others of its group (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in edges().get(module, ()):
            if other not in index:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == index[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.add(frozenset(group))

    for module in edges():
        if module not in index:
            visit(module)
    return found


def test_no_imports_run_in_a_circle() -> None:
    assert circles() == set()


# --- doors

# `capi` is `verbs` for C; the others look inside on purpose: they test, measure and torment it.
INSIDE = {"verbs", "capi", "conform", "bench", "soak"}


def private_names(path: Path) -> set[str]:
    """Names with one underscore that a module gives to what it defines or sets."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def test_verbs_is_entered_by_its_door() -> None:
    """Nobody takes what an object of `verbs` keeps to itself: a name that only `verbs` gives."""
    given: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        given.setdefault(module.partition(".")[0], set()).update(private_names(path))
    taken = []
    for module, path in MODULES.items():
        room = module.partition(".")[0]
        own = given["verbs"] - given[room]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if room not in INSIDE and isinstance(node, ast.Attribute) and node.attr in own:
                taken.append(f"{module}:{node.lineno}: {ast.unparse(node)}")
    assert not taken, taken


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "engine").glob("*.py")), ids=lambda path: str(path.stem)
)
def test_the_engine_knows_no_clock_no_socket_and_no_chance(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None)
            for name in [module] if module else [alias.name for alias in node.names]:
                assert name.partition(".")[0] not in CLOCKS_AND_CHANCE
                stdlib = {"__future__", "collections", "dataclasses", "typing"}
                assert name.partition(".")[0] in {"openmrc", "numpy", *stdlib}


# --- doors


def door_of(room: str) -> set[str]:
    """What a room's `__all__` lists: names, and modules and rooms of its own that others may
    import.
    """
    for node in ast.parse(MODULES[room].read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def is_within(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def entered(room: str) -> dict[str, str]:
    """The parts of a room that others import, and one of these others."""
    return {
        other.removeprefix(f"{room}.").partition(".")[0]: module
        for module, others in edges().items()
        for other in others
        if is_within(other, room) and other != room and not is_within(module, room)
    }


ROOMS = sorted(name for name, path in MODULES.items() if name and path.name == "__init__.py")


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_entered_by_its_door_and_no_part_of_the_door_is_false(room: str) -> None:
    door, used = door_of(room), entered(room)
    assert used.keys() <= door
    parts = {name for name in door if f"{room}.{name}" in MODULES}
    assert parts - used.keys() <= (door if room == "verbs" else set()), "nobody enters there"


# Of the engine's names, and of the fields of a QP's record, that other rooms know.
ENGINE_NAMES_MAX, QP_FIELDS_READ_MAX = 30, 24
OUTSIDE = {
    path: text
    for name, path in MODULES.items()
    if not is_within(name, "engine")
    if "openmrc.engine" in (text := path.read_text(encoding="utf-8")) or ".qp" in text
}


def test_other_rooms_know_few_names_of_the_engine() -> None:
    names = {
        (node.module, alias.name)
        for text in OUTSIDE.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("openmrc.engine.")
        for alias in node.names
    }
    assert 0 < len(names) <= ENGINE_NAMES_MAX


@cache
def fields_of_qp() -> frozenset[str]:
    from openmrc.engine.state import QP

    return frozenset(QP.names or ())


class QpFields(ast.NodeVisitor):
    """What a module does with the fields of QP records of the engine, `st.qp[...]`: a name that is
    assigned one, an element of one, or is an argument `q`, is one too.
    """

    def __init__(self, text: str) -> None:
        self.read: set[str] = set()
        self.written: set[str] = set()
        self._known: list[set[str]] = [set()]
        tree = ast.parse(text)
        for _ in range(2):  # attributes of `self` may be used above where they are assigned
            self.visit(tree)

    def _is_record(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Subscript):
            return self._is_record(node.value)
        text = ast.unparse(node)
        if any(text in known for known in self._known):
            return True
        of, _, name = text.rpartition(".")
        return name == "qp" and of.rpartition(".")[2] in {"st", "engine"}

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for each, its in zip(target.elts, value.elts, strict=False):
                self._assign(each, its)
        elif self._is_record(value) and isinstance(target, ast.Name | ast.Attribute):
            self._known[0 if isinstance(target, ast.Attribute) else -1].add(ast.unparse(target))
        elif isinstance(target, ast.Subscript):  # of an array of a field: q.peer[...] = ...
            self._note(target.value, self.written)

    def _note(self, node: ast.expr, into: set[str]) -> None:
        if isinstance(node, ast.Attribute):
            name: Any = node.attr
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            name = node.slice.value
        else:
            return
        if name in fields_of_qp() and self._is_record(node.value):
            into.add(name)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._known.append({each.arg for each in node.args.args if each.arg == "q"})
        self.generic_visit(node)
        self._known.pop()

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assign(target, node.value)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._assign(node.target, node.iter)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._note(node, self.read if isinstance(node.ctx, ast.Load) else self.written)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._note(node, self.read if isinstance(node.ctx, ast.Load) else self.written)
        self.generic_visit(node)


@pytest.mark.parametrize(
    ("line", "read", "written"),
    [
        ("st.qp[i].cwnd = 0.0", set(), {"cwnd"}),
        ("q = host.st.qp[i]\nq.receives += 1", set(), {"receives"}),
        ("q = self.engine.qp\nat = q.slot0[i]", {"slot0"}, set()),
        ("st.qp.peer[i] = 0", {"peer"}, {"peer"}),
        ("for q in st.qp[:n]:\n    q.base_rtt = q['target']", {"target"}, {"base_rtt"}),
        ("def f(q):\n    return q.una", {"una"}, set()),
        ("q, live = st.qp[i], ep.qp[i]\nlive.born = q.qpn", {"qpn"}, set()),
        ("rq = ro.qp[i]\nrq.nxt += net.qp[i].ready", set(), set()),
    ],
)
def test_what_becomes_of_a_qps_fields_is_found(
    line: str, read: set[str], written: set[str]
) -> None:
    found = QpFields(line)
    assert (found.read, found.written) == (read, written)


def test_nobody_outside_writes_a_qps_record_and_few_fields_are_read() -> None:
    uses = [(path, QpFields(text)) for path, text in OUTSIDE.items()]
    assert {(path.name, field) for path, found in uses for field in found.written} == set()
    read = {field for _, found in uses for field in found.read}
    assert 0 < len(read) <= QP_FIELDS_READ_MAX, sorted(read)


# --- citations

ROWS = re.compile(r"\b[Rr]ows? (\d+(?:(?:, | to | and )\d+)*)")
SECTIONS = re.compile(r"\bMRC (\d+\.\d+(?:(?:, | to | and )\d+\.\d+)*)")
VERSION = "1.0"  # "MRC 1.0" is the protocol's


def spread(text: str) -> set[str]:
    """The numbers of "2.6, 2.7" or "6 to 9 and 17", those between included."""
    found = set(re.findall(r"[\d.]*\d", text))
    for first, last in re.findall(r"([\d.]+) to ([\d.]+)", text):
        front = first.rpartition(".")[0]
        ends = (int(end.rpartition(".")[2]) for end in (first, last))
        found |= {f"{front}.{n}".lstrip(".") for n in range(next(ends), next(ends) + 1)}
    return found


def cited(what: re.Pattern[str]) -> dict[str, str]:
    """Each number that the source cites, with a file that does."""
    return {
        number: path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.suffix in {".py", ".lua", ".c"}
        for group in what.findall(path.read_text(encoding="utf-8"))
        for number in spread(group)
    }


def lines_of(document: str, heading: str) -> set[str]:
    """The numbers in the first column of a section's table, or of its rows, each a heading."""
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^(?:\| |### Row )([\d.]+)(?: \||:)", section, re.M))


def test_every_row_that_is_cited_is_a_line_of_the_choices() -> None:
    there = lines_of("protocol.md", "The choices") | lines_of("wire.md", "Choices")
    assert there >= {str(row) for row in range(1, 29)}
    assert {row: where for row, where in cited(ROWS).items() if row not in there} == {}


def test_every_section_that_is_cited_is_a_line_of_the_sources_and_no_other_is() -> None:
    there, found = lines_of("protocol.md", "Sources"), cited(SECTIONS)
    assert {
        number: where for number, where in found.items() if number not in {*there, VERSION}
    } == {}
    assert there - set(found) == set()


def test_citations_have_one_form() -> None:
    wrong = re.compile(r"\b[Rr]eference \d|(?:MRC|[Rr]eference) §")
    for path in FILES:
        assert wrong.findall(path.read_text(encoding="utf-8")) == [], path


def test_every_row_that_the_engine_decides_or_cites_has_a_test_named_after_it() -> None:
    engine = {
        int(number)
        for path in (PACKAGE / "engine").glob("*.py")
        for group in ROWS.findall(path.read_text(encoding="utf-8"))
        for number in spread(group)
    }
    named = {
        int(number)
        for path in (ROOT / "tests/engine").glob("test_*.py")
        for number in re.findall(r"def test_row_(\d+)_", path.read_text(encoding="utf-8"))
    }
    assert named >= {*range(5, 21), 23, 24, 26}
    assert engine <= named
    assert engine >= {*range(5, 15), 16, 17, 18, 19}
