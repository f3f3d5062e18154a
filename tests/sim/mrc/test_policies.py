"""Policies that a user brings: found, refused with what would be right, compiled, and obeyed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from openmrc import parse_scenario
from openmrc.errors import InputError
from openmrc.jit import interpreted
from openmrc.scenario.transports import TransportSection
from openmrc.sim.mrc.policies import find
from openmrc.sim.world import World
from tests.sim.mrc.brought import scenario, world

ROOT = Path(__file__).resolve().parents[3]
HEAD = "from openmrc.jit import compiled\n"
STEP = "def step(st, q, event, now, new_bytes, rtt_ps, marked):\n"
CHOOSE = "def choose(st, q, plane, avoid):\n"
LEARN = "def learn(st, q, ev, event, now):\n"


def write(folder: Path, text: str, name: str = "my.py") -> Path:
    file = folder / name
    file.write_text(HEAD + text)
    return file


def same(a: World, b: World) -> bool:
    return (
        a.counters() == b.counters()
        and a.flows()["done_ps"].tolist() == b.flows()["done_ps"].tolist()
    )


# --- found or refused


@pytest.mark.parametrize(
    ("text", "file", "words"),
    [
        ("my.py", None, "'my.py' is not a policy; write FILE.py:NAME"),
        ("my.txt:step", None, "'my.txt:step' is not a policy"),
        ("my.py:step", None, "my.py: cannot be read (No such file or directory)"),
        ("my.py:step", "def step(:\n", "my.py is not Python: invalid syntax"),
        (
            "my.py:step",
            "def other(q):\n    pass\n",
            "my.py has no function step (it has: other); write"
            " def step(st, q, event, now, new_bytes, rtt_ps, marked):",
        ),
        (
            "my.py:step",
            "\ndef step(q, now):\n    pass\n",
            "my.py:3: step(q, now) cannot be called; write"
            " def step(st, q, event, now, new_bytes, rtt_ps, marked):",
        ),
        ("my.py:step", STEP.replace("marked", "*marked") + "    pass\n", "cannot be called"),
        ("my.py:step", STEP.replace("marked", "marked=0") + "    pass\n", "cannot be called"),
    ],
)
def test_what_cannot_be_called_is_refused_with_what_could(
    text: str, file: str | None, words: str, tmp_path: Path
) -> None:
    if file is not None:
        write(tmp_path, file)
    with pytest.raises(InputError) as error:
        find(text, "step", tmp_path)
    assert words in str(error.value)


def test_learn_beside_choose_is_checked_too(tmp_path: Path) -> None:
    write(tmp_path, CHOOSE + "    return 0\n" + "def learn(ev):\n    pass\n")
    with pytest.raises(InputError, match=r"learn\(ev\) cannot be called; write def learn\(st, q"):
        find("my.py:choose", "choose", tmp_path)


@pytest.mark.parametrize(
    ("transport", "words"),
    [
        ('cc = "dctcp"', "transport.cc: 'dctcp' is refused; accepted: nscc, none or FILE.py"),
        ("cc = 5", "transport.cc: 5 is refused"),
        ('paths = "ecmp"', "transport.paths: 'ecmp' is refused; accepted: mrc, oblivious, r"),
        ('cc = "my.py:step"', "my.py: cannot be read (No such file or directory); name a p"),
    ],
)
def test_a_scenario_names_the_key(transport: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        scenario(tmp_path, transport)
    assert words in str(error.value)


def test_a_policy_is_looked_for_beside_its_scenario_and_named_after_it(tmp_path: Path) -> None:
    file = write(tmp_path, CHOOSE + "    return 0\n")
    said = scenario(tmp_path, 'paths = "my.py:choose"')
    assert isinstance(said.transports[0], TransportSection)
    assert said.transports[0].paths == f"{file}:choose"
    assert parse_scenario(said.to_toml()) == said
    assert said.files() == [file]  # a sweep runs anew when it is edited
    unnamed = parse_scenario(
        '[transport]\npaths = "my.py:choose"\n[workload]\nkind = "permutation"\n', base=tmp_path
    )
    assert unnamed.transports[0].name == "my.py:choose"


@pytest.mark.skipif(interpreted(), reason="nothing is compiled")
def test_what_does_not_compile_is_refused_with_the_reason(tmp_path: Path) -> None:
    write(tmp_path, "@compiled\n" + STEP + "    q.windw = 1.0\n")
    with pytest.raises(
        InputError, match=r"step does not compile: there is no field .windw.; mrc policy"
    ):
        world(tmp_path, 'cc = "my.py:step"')


def test_a_file_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "import no_such_library\n" + STEP + "    pass\n")
    with pytest.raises(InputError, match=r"my\.py: cannot be imported: ModuleNotFoundError: No"):
        world(tmp_path, 'cc = "my.py:step"')


# --- obeyed


@pytest.mark.parametrize("decorator", ["@compiled\n", ""])
def test_a_step_sets_the_window(decorator: str, tmp_path: Path) -> None:
    write(tmp_path, decorator + STEP + "    q.cwnd = 7.0 * q.pkt\n")
    w = world(tmp_path, 'cc = "my.py:step"')
    q = w.engine.qp[w.ends.sender]
    assert (q.cwnd == 7 * q.pkt).all()


@pytest.mark.parametrize(
    ("value", "window"),
    [
        ("-1.0", "pkt"),
        ("q.pkt - 1.0", "pkt"),
        ("1e18", "max_wnd"),
        ("NAN", "max_wnd"),
    ],
)
def test_a_window_stays_within_the_limits(value: str, window: str, tmp_path: Path) -> None:
    text = "NAN = float('nan')\n@compiled\n" + STEP
    write(tmp_path, text + f"    q.cwnd = {value}\n")
    w = world(tmp_path, 'cc = "my.py:step"')
    q = w.engine.qp[w.ends.sender]
    assert (q.cwnd == q[window]).all()


def test_a_step_hears_of_sacks_trims_and_losses(tmp_path: Path) -> None:
    write(
        tmp_path,
        "@compiled\n" + STEP + "    st.own[q.index, event] += 1.0\n"
        "    if event == 0:\n        st.own[q.index, 3] += new_bytes\n",
    )
    w = world(tmp_path, 'cc = "my.py:step"', 'kind = "incast"\nn = 7')
    own = w.engine.own[w.ends.sender].sum(axis=0)
    c = w.counters()
    assert 0 < own[0] <= c["sack"]
    assert 0.95 * c["trimmed"] < own[1] <= c["trimmed"]  # some were sent twice, and one came whole
    assert own[2] == c["inferred"] + c["timeouts"]
    # the unit of rcvd_bytes is 256 B of nominal packet sizes
    assert own[3] >= w.traffic.msg_bytes.sum()


def test_a_choice_of_one_path_is_obeyed(tmp_path: Path) -> None:
    write(tmp_path, "@compiled\n" + CHOOSE + "    return st.plane[q.plane0 + plane].ev0 + 1\n")
    w = world(tmp_path, 'paths = "my.py:choose"', 'kind = "stream"\nsrc = 0\ndst = 7')
    q = w.engine.qp[w.ends.sender[0]]
    used = w.engine.ev.used[q.ev0 : q.ev0 + q.n_evs]
    assert used.tolist() == [0, used.sum() // 2, 0, 0] * 2


@pytest.mark.parametrize("answer", ["-1", "st.plane[q.plane0 + plane].ev0 + 4"])
def test_a_choice_beside_the_plane_is_its_first_path(answer: str, tmp_path: Path) -> None:
    write(tmp_path, "@compiled\n" + CHOOSE + f"    return {answer}\n")
    w = world(tmp_path, 'paths = "my.py:choose"', 'kind = "stream"\nsrc = 0\ndst = 7')
    q = w.engine.qp[w.ends.sender[0]]
    used = w.engine.ev.used[q.ev0 : q.ev0 + q.n_evs]
    assert used.tolist() == [used.sum() // 2, 0, 0, 0] * 2


def test_learn_hears_of_every_path(tmp_path: Path) -> None:
    write(
        tmp_path,
        "@compiled\n" + CHOOSE + "    return st.plane[q.plane0 + plane].ev0\n"
        "@compiled\n" + LEARN + "    st.own[q.index, event] += 1.0\n",
    )
    w = world(tmp_path, 'paths = "my.py:choose"', 'kind = "incast"\nn = 7')
    clean, marked, trimmed, lost = w.engine.own[w.ends.sender].sum(axis=0)[:4]
    assert clean > 0
    # what was judged lost before its NACK came was heard of as that
    assert 0.98 * w.counters()["trimmed"] < trimmed <= w.counters()["trimmed"]
    assert lost == w.counters()["inferred"] + w.counters()["timeouts"]
    assert marked <= w.counters()["ecn_marked"]


def test_the_built_in_rotation_as_a_policy_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    own = ROOT / "benchmarks" / "own" / "rotation.py"
    assert same(world(tmp_path, ""), world(tmp_path, f'paths = "{own}:choose"'))


def test_a_step_that_does_nothing_is_no_congestion_control(tmp_path: Path) -> None:
    own = ROOT / "benchmarks" / "own" / "nothing.py"
    incast = 'kind = "incast"\nn = 7'
    assert same(
        world(tmp_path, 'cc = "none"', incast), world(tmp_path, f'cc = "{own}:step"', incast)
    )


def test_two_policies_at_once_and_a_world_without_have_their_own_room(tmp_path: Path) -> None:
    write(tmp_path, "@compiled\n" + STEP + "    st.own[q.index, 0] += 1.0\n", "a.py")
    write(tmp_path, "@compiled\n" + CHOOSE + "    return 0\n", "b.py")
    w = world(tmp_path, 'cc = "a.py:step"\npaths = "b.py:choose"', run=False)
    assert len(w.engine.own) == w.ends.n
    assert len(world(tmp_path, "", run=False).engine.own) == 1


def test_an_edit_is_seen_at_once(tmp_path: Path) -> None:
    windows = []
    for packets in (5, 9):
        write(tmp_path, "@compiled\n" + STEP + f"    q.cwnd = {packets}.0 * q.pkt\n")
        w = world(tmp_path, 'cc = "my.py:step"')
        q = w.engine.qp[w.ends.sender]
        windows.append((q.cwnd / q.pkt).max())
    assert windows == [5, 9]


RUN = """
import sys
from pathlib import Path
from tests.sim.mrc.brought import world
w = world(Path(sys.argv[1]), 'cc = "my.py:step"', size="40kB")
module = next(m for name, m in sys.modules.items() if name.startswith("openmrc_policy"))
hits = 0 if not hasattr(module.step, "stats") else sum(module.step.stats.cache_hits.values())
print(hits, w.now_ps)
"""


def in_another_process(folder: Path, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(folder)],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.skipif(interpreted(), reason="nothing is compiled")
def test_the_second_start_takes_it_from_the_disk_and_plain_python_says_the_same(
    tmp_path: Path,
) -> None:
    window = (
        "    q.cwnd = (6.0 + st.own[q.index, 0] % 3.0) * q.pkt\n    st.own[q.index, 0] += 1.0\n"
    )
    write(tmp_path, f"# {tmp_path}\n@compiled\n" + STEP + window)
    first, second = in_another_process(tmp_path), in_another_process(tmp_path)
    assert (first[0], second[0]) == ("0", "1")
    plain = in_another_process(tmp_path, NUMBA_DISABLE_JIT="1")
    assert first[1] == second[1] == plain[1]


# --- the examples


EXAMPLES: dict[str, Any] = {
    "dctcp": 'cc = "dctcp.py:step"',
    "recycle": 'paths = "recycle.py:choose"',
}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("workload", ['kind = "permutation"', 'kind = "incast"\nn = 7'])
def test_the_examples_carry_everything(name: str, workload: str) -> None:
    w = world(ROOT / "examples" / "policies", EXAMPLES[name], workload)
    assert w.engine.own[w.ends.sender].any()
    assert w.qp_errors() == []


def test_dctcp_keeps_an_incast_from_trimming_for_ever() -> None:
    folder = ROOT / "examples" / "policies"
    incast = 'kind = "incast"\nn = 7'
    none, dctcp = (
        world(folder, cc, incast).counters()["trimmed"] for cc in ('cc = "none"', EXAMPLES["dctcp"])
    )
    assert dctcp < 0.3 * none


def test_recycling_takes_some_paths_more_often_than_others() -> None:
    w = world(
        ROOT / "examples" / "policies", EXAMPLES["recycle"], 'kind = "stream"\nsrc = 0\ndst = 7'
    )
    q = w.engine.qp[w.ends.sender[0]]
    used = w.engine.ev.used[q.ev0 : q.ev0 + q.n_evs]
    assert used.sum() == w.counters()["data"] + w.counters()["retransmitted"]
    assert len(set(used.tolist())) > 2, "a rotation would take all alike"


def test_the_policies_of_the_tutorial_run(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "policies.md").read_text()
    blocks = [block.partition("```")[0] for block in text.split("```python\n")[1:]]
    step, choose = blocks
    (tmp_path / "a.py").write_text(step)
    (tmp_path / "b.py").write_text(choose)
    w = world(tmp_path, 'cc = "a.py:step"\npaths = "b.py:choose"', 'kind = "incast"\nn = 7')
    q = w.engine.qp[w.ends.sender]
    assert (q.cwnd < q.max_wnd).all()
