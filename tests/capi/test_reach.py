"""How an end of libmrc on an ordinary network finds its peer by the GID."""

from __future__ import annotations

import errno
import json
import socket
import threading

import pytest

from openmrc.capi import reach
from openmrc.capi.places import Refused
from openmrc.live.endpoint.peers import Reach
from openmrc.verbs.exchange import VERSION


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_gid_says_where_to_ask_for_the_planes() -> None:
    planes = Reach("127.0.0.1", free_port(), (50_000,)), Reach("127.0.0.2", 4791, (50_001, 50_002))
    answering = reach.Answering(planes)
    gid = reach.gid_of(planes[0])
    assert reach.where(gid) == ("127.0.0.1", planes[0].port)
    assert reach.ask(gid) == planes
    answering.close()
    with pytest.raises(Refused) as refused:
        reach.ask(gid)
    assert refused.value.code == errno.ECONNREFUSED


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([], "no end of libmrc"),
        ({"openmrc": VERSION}, "no end of libmrc"),
        (
            {"openmrc": VERSION + 1, "planes": []},
            f"speaks version {VERSION + 1} of the wire, this end version {VERSION}: install the",
        ),
    ],
)
def test_who_speaks_otherwise_is_refused_by_what_it_says(told: object, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            asking, _ = server.accept()
            with asking:
                asking.sendall(json.dumps(told).encode() + b"\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(Refused, match=words) as refused:
            reach.ask(reach.gid_of(Reach("127.0.0.1", server.getsockname()[1], ())))
        thread.join()
    assert refused.value.code == errno.EPROTO
