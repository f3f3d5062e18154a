"""The fuzzer runs for a bounded number of frames, sees the code it drives, and finds a fault."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "fuzz" / "corpus"
CORPUS_BYTES_MOST = 100_000  # it lives in the repository
RUNS = 5_000  # some ten seconds; `fuzz/decode.py` by hand for more

needs_atheris = pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="NOT FUZZED: atheris is not installed (it has wheels for Linux x86-64 only)",
)


def fuzz(where: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=where, capture_output=True, text=True, check=False
    )


@needs_atheris
def test_the_decoders_agree_on_whatever_the_fuzzer_finds(tmp_path: Path) -> None:
    found = tmp_path / "found"
    found.mkdir()
    script = str(ROOT / "fuzz" / "decode.py")
    # libFuzzer's own limit, on top of what this process has taken: the peak that Linux reports of a
    # child begins with its parent's, and this one may have compiled the engine.
    limit_mb = 2048 + getrusage(RUSAGE_SELF).ru_maxrss // 1024
    options = (f"-runs={RUNS}", "-seed=1", "-max_len=600", f"-rss_limit_mb={limit_mb}")
    run = fuzz(tmp_path, script, *options, str(found), str(CORPUS))
    assert run.returncode == 0, run.stderr[-3000:]
    done = re.search(rf"#{RUNS}\s+DONE\s+cov: (\d+)", run.stderr)
    assert done, run.stderr[-3000:]
    assert int(done[1]) > 150  # edges of walk.py and view.py: it is guided by what they do


@needs_atheris
def test_the_fuzzer_finds_a_planted_difference(tmp_path: Path) -> None:
    program = (
        "import runpy, sys; from openmrc.fabric import dscp; dscp.Dscps.trims = ();"
        f" sys.argv = ['decode.py', '-runs=500', '-seed=1', {str(CORPUS)!r}];"
        f" runpy.run_path({str(ROOT / 'fuzz' / 'decode.py')!r}, run_name='__main__')"
    )
    run = fuzz(tmp_path, "-c", program)
    assert run.returncode != 0
    assert "AssertionError" in run.stdout + run.stderr


def test_mutated_frames_and_captures_bring_errors_of_ours_only() -> None:
    run = fuzz(ROOT, "fuzz/mutations.py", "--frames", "300", "--captures", "60", "--seed", "5")
    assert run.returncode == 0, run.stderr[-3000:]
    assert re.search(r"300 frames: .*\b\d+ accepted", run.stdout)
    assert re.search(r"60 captures: \d+ (read|refused), \d+ (read|refused)", run.stdout)


def test_the_corpus_is_small() -> None:
    sizes = [path.stat().st_size for path in CORPUS.iterdir()]
    assert sizes
    assert sum(sizes) < CORPUS_BYTES_MOST
