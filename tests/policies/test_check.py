"""Policies are run uncompiled and watched; `mrc policy` says what was found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from openmrc.cli.command import main
from openmrc.errors import InputError
from openmrc.jit import interpreted
from openmrc.policies.check import Checked, check
from openmrc.policies.look import Finding

ROOT = Path(__file__).resolve().parents[2]
HEAD = "from openmrc.jit import compiled\n\n\n@compiled\n"
STEP = HEAD + "def step(st, q, event, now, new_bytes, rtt_ps, marked):\n"
CHOOSE = HEAD + "def choose(st, q, plane, avoid):\n"

WRONG = {  # (role, body): what is said, in line 6
    ("step", "    st.own[q.index, 24] = 1.0\n"): "IndexError: index 24 is out of bounds for axis 1",
    ("step", "    st.own[q.index - 99, 0] = 1.0\n"): "IndexError: index -9",
    ("step", "    q.cwnd = 1 // (now - now)\n"): "ZeroDivisionError: ",
    ("choose", "    return st.ev[-1].plane\n"): "IndexError: index -1 is out of bounds",
}


def rehearsed(cases: list[str]) -> list[dict[str, Any]]:
    script = str(Path(__file__).with_name("plain.py"))
    done = subprocess.run(
        [sys.executable, script, *cases], env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    told: list[dict[str, Any]] = json.loads(done.stdout)
    return told


def test_what_a_policy_does_wrong_is_seen_uncompiled(tmp_path: Path) -> None:
    cases = []
    for number, (role, body) in enumerate(WRONG):
        file = tmp_path / f"wrong{number}.py"
        file.write_text({"step": STEP, "choose": CHOOSE}[role] + body)
        cases.append(f"{role}={file}")
    others = tmp_path / "others.py"
    others.write_text(STEP + "    st.own[(q.index + 1) % 5, 0] += 1.0\n")
    odd = tmp_path / "odd.py"
    odd.write_text(STEP + "    q.cwnd = 0.0 if event == 1 else float('nan')\n")
    far = tmp_path / "far.py"
    far.write_text(CHOOSE + "    return 99\n")
    *wrong, of_others, of_odd, of_far = rehearsed(
        [*cases, f"step={others}", f"step={odd}", f"choose={far}"]
    )
    for told, words in zip(wrong, WRONG.values(), strict=True):
        assert told["error"]["line"] == 6
        assert told["error"]["words"].startswith(words)
    assert "a row of st.own other than " in of_others["error"]["words"]
    assert "error" not in of_odd
    assert {note.partition(";")[0] for note in of_odd["notes"]} == {
        "step leaves q.cwnd = nan",
        "step leaves q.cwnd below q.pkt",
    }
    assert all(of_odd["calls"][f"step {kind}"] > 0 for kind in ("SACKs", "trims", "losses"))
    (note,) = of_far["notes"]
    assert note.startswith("choose returns an EV of another plane")


@pytest.mark.skipif(interpreted(), reason="nothing is compiled")
def test_a_sound_policy_is_counted_and_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(ROOT / "examples/policies/recycle.py")
    assert main(["policy", "check", file]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("choose: called ")
    assert line.endswith(" times; compiles")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("from no_such import step\n", "cannot be imported: ModuleNotFoundError: No module named"),
        (f"import no_such\n{STEP}    return 0.0\n", "ModuleNotFoundError: No module named"),
        (f"{STEP}    return 0.0\nraise SystemExit(3)\n", "cannot be imported: SystemExit: 3"),
        ("from operator import add as step\n", "imports step; a policy is written in its own file"),
    ],
)
def test_a_file_that_cannot_be_imported_says_so(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.py").write_text(text)
    assert main(["policy", "check", str(tmp_path / "my.py")]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)


def test_a_typo_ends_the_check_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "my.py"
    file.write_text(STEP + "    q.cwmd = 1.0\n")
    assert main(["policy", "check", str(file), "--json"]) == 1
    printed = capsys.readouterr()
    told = json.loads(printed.out)
    assert (told["sound"], told["run"], printed.err) == (False, {}, "")
    assert told["findings"][0]["line"] == 6


def test_control_c_ends_an_endless_loop_and_says_where(tmp_path: Path) -> None:
    file = tmp_path / "endless.py"
    file.write_text(STEP + "    print('in it', flush=True)\n    while q.cwnd > 0:\n        pass\n")
    command = [sys.executable, "-m", "openmrc.cli", "policy", "check", str(file)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line == "in it\n":
                break
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        out, err = process.communicate()
    assert process.returncode == 130
    assert out.startswith(f"{file}:")
    assert out.endswith(": interrupted here\n")
    assert int(out.split(":")[1]) in (6, 7, 8)
    assert "Traceback" not in err


def test_what_is_no_policy_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "no.py"
    for text, words in {
        "x = 1\n": "has neither step nor choose",
        "def step(:\n": "is not Python",
        "def step(q):\n    pass\n": "cannot be called",
    }.items():
        file.write_text(text)
        with pytest.raises(InputError, match=words):
            check(str(file))
    with pytest.raises(InputError, match="cannot be read"):
        check(str(tmp_path / "not_there.py"))


def test_the_fields_are_listed_with_their_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "fields", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["q"]["cwnd"] == {"meaning": "congestion window: what `step` sets", "unit": "bytes"}
    assert main(["policy", "fields"]) == 0
    assert "st.plane[q.plane0 + plane]" in capsys.readouterr().out


def test_a_warning_does_not_stop_a_policy() -> None:
    checked = Checked(Path("a.py"), {}, [Finding(3, "q.una is the engine's", warning=True)])
    assert checked.is_sound
    assert checked.lines() == ["a.py:3: warning: q.una is the engine's"]
