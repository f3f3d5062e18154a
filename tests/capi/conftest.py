"""The two libraries, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmrc.capi import build
from openmrc.errors import InputError


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which libmrc.so and libibverbs.so.1 are."""
    try:
        build.compiler()
        build.python_library()
    except InputError as error:
        pytest.skip(str(error))
    out = tmp_path_factory.mktemp("libmrc")
    build.build(out)
    return out
