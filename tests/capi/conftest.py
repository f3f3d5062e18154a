"""The two libraries, built once, and a device that is open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from openmrc.capi import build, reach
from openmrc.capi.devices import LIMITS
from openmrc.capi.linked import Api
from openmrc.errors import InputError
from openmrc.verbs import Device
from tests.capi.handles import Open, Peer

PLANES = "127.0.10.1"


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


@pytest.fixture(scope="module")
def api(library: Path) -> Api:
    return Api(library)


@pytest.fixture
def there(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    monkeypatch.setenv("OPENMRC_INTERFACES", PLANES)
    monkeypatch.delenv("OPENMRC_HOST", raising=False)
    found = Open(api)
    yield found
    api("ibv_close_device", found.context)


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with Device.on_network(["127.0.11.1"], pmtu=4096, **LIMITS) as device:
        planes = device._host.reach
        answering = reach.Answering(planes)
        yield Peer(device, reach.gid_of(planes[0]))
        answering.close()
