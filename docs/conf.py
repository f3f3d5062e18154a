"""How Sphinx makes the site (`make docs`): the pages as they are, and an API reference.

The source directory is the root of the repository, so that a page's links to the README, the
examples and other pages lead where they do in a clone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from openmrc.version import __version__  # noqa: E402

project = "openmrc"
author = "The openmrc maintainers"
copyright = author
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "conformance/README.md",
    "fuzz/README.md",
    "docs/**.md",
    "examples/sweep.ipynb",
]
exclude_patterns = [".venv", ".git", "build", "tests", "src", "dist"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}

myst_heading_anchors = 4  # as GitHub names them
myst_enable_extensions = ["attrs_inline"]
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build/notebooks")
nb_execution_in_temp = True  # it writes a data set
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True  # a sweep's progress is one block, not one a line

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_default_options = {"members": True, "undoc-members": False, "show-inheritance": True}
default_role = "code"

html_theme = "furo"
html_title = f"openmrc {__version__}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_extra_path = ["../build/sample"]  # the report of the tutorial

suppress_warnings = [
    "myst.header",  # a page may begin its headings at any level
    "myst.xref_missing",  # anchors are checked by tests/test_links.py
]


def _plain(_app: Any, _what: str, _name: str, _of: Any, _options: Any, lines: list[str]) -> None:
    """Docstrings here are plain text: an indented block is an example, a star is a star."""
    made: list[str] = []
    example = False
    for line in lines:
        if line.strip():
            begins = line.startswith("    ") and not (made and made[-1].strip())
            if begins and not example:
                made += ["::", ""]
            example = begins or (example and line.startswith("    "))
        made.append(line if example else line.replace("*", r"\*"))
    lines[:] = made


def setup(app: Any) -> None:
    """Tell Sphinx of it."""
    app.connect("autodoc-process-docstring", _plain)
