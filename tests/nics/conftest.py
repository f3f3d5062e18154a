"""libmrc, built once."""

from tests.capi.conftest import api, library

__all__ = ["api", "library"]
