"""The notebook runs as Jupyter runs it: in a kernel of its own, cell after cell."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from openmrc.jit import interpreted

NOTEBOOK = Path(__file__).resolve().parents[1] / "examples/sweep.ipynb"
HAS_JUPYTER = find_spec("nbclient") is not None and find_spec("ipykernel") is not None

pytestmark = [
    pytest.mark.skipif(not HAS_JUPYTER, reason="THE NOTEBOOK IS NOT TESTED: nbclient, ipykernel"),
    pytest.mark.skipif(interpreted(), reason="minutes in plain Python"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client"),
]


def cells() -> Any:
    import nbformat

    return nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]


def test_the_notebook_is_kept_without_output() -> None:
    code = [cell for cell in cells().cells if cell.cell_type == "code"]
    assert [(cell.outputs, cell.execution_count) for cell in code] == [([], None)] * len(code)


def test_the_notebook_runs_and_says_what_its_tables_say(tmp_path: Path) -> None:
    from nbclient import NotebookClient
    from nbformat.v4 import new_code_cell

    notebook = cells()
    compare = (
        "worst = answer.filter(pl.col('fault[0].rate') == 0.3)\n"
        "print(*worst['median'] / worst['median'][0], worst['transport'].to_list())"
    )
    notebook.cells.append(new_code_cell(compare))  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()

    *_, picture, _, last = notebook.cells
    assert [output.data["image/png"][:4] for output in picture.outputs] == ["iVBO"]
    mrc, oblivious, single, names = last.outputs[0].text.split(maxsplit=3)
    assert names == "['mrc', 'oblivious', 'single']\n"
    assert math.isclose(float(mrc), 1)
    assert 0.95 < float(oblivious) < 1.1  # "about as late as that of one that learns nothing"
    assert float(single) > 50
    assert len(list((tmp_path / "lossy-t0/runs").iterdir())) == 16
