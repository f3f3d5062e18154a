"""A browser for the pages of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.report import browser
from tests.report.browser import Browser


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    if absent := browser.missing():
        pytest.skip(f"{' and '.join(absent)} not installed: the page was not opened in a browser")
    with Browser() as one:
        yield one
