"""Move a file from one process to another over MRC: two hosts of any network, or one machine.

    OPENMRC_SECRET=... python two_hosts.py receive COPY --planes ADDRESS,ADDRESS
    OPENMRC_SECRET=... python two_hosts.py send FILE --to HOST --planes ADDRESS,ADDRESS

A plane is an interface or an address of the host. Both ends name the same number of planes, in the
same order. Without --planes the host file at OPENMRC_HOST describes the device, as in `mrc lab`.
"""

import argparse
from pathlib import Path

from openmrc.errors import OpenMrcError
from openmrc.verbs import LOCAL_WRITE, REMOTE_WRITE, Device, QpState, exchange
from openmrc.verbs import secret as secrets

ROOM = 64 << 20  # bytes that the receiver offers
PORT = 18600  # TCP port of the exchange


def receive(device: Device, copy: Path, secret: bytes) -> None:
    room = bytearray(ROOM)
    cq = device.create_cq()
    qp = device.create_qp(cq)
    qp.modify(QpState.INIT)
    qp.post_recv(1)  # before the sender can use it
    region = device.reg_mr(room, REMOTE_WRITE | LOCAL_WRITE)
    with exchange.Listener(PORT, secret) as listener, listener.accept(qp, [region]) as peer:
        [done] = cq.wait()  # the immediate: all bytes of the file are in place
        copy.write_bytes(room[: done.imm_data])
        peer.wait()  # the sender still needs the last acknowledgement
    print(f"received {done.imm_data} bytes: {done.status.name}")


def send(device: Device, file: Path, host: str, secret: bytes) -> None:
    data = bytearray(file.read_bytes())
    cq = device.create_cq()
    qp = device.create_qp(cq)
    region = device.reg_mr(data, LOCAL_WRITE)
    with exchange.connect(qp, host, PORT, secret) as peer:
        there = peer.regions[0]
        qp.post_write_imm(1, region, remote_addr=there.addr, rkey=there.rkey, imm_data=len(data))
        [done] = cq.wait()
    again = qp.counters()["rtx"]
    print(f"sent {len(data)} bytes: {done.status.name}, {again} packets sent again")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("role", choices=["receive", "send"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--to", metavar="HOST")
    parser.add_argument("--planes", metavar="A,B")
    arguments = parser.parse_args()
    if (arguments.role == "send") != (arguments.to is not None):
        parser.error("--to HOST: the sender says it, the receiver waits")
    planes = arguments.planes
    try:
        secret = secrets.needed(None)  # of OPENMRC_SECRET
        with Device.on_network(planes.split(",")) if planes else Device.open() as device:
            if arguments.role == "receive":
                receive(device, arguments.file, secret)
            else:
                send(device, arguments.file, arguments.to, secret)
    except (OpenMrcError, OSError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()
