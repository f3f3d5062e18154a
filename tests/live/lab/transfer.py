"""Run on two hosts of a lab: rank 0 writes to rank 1 over every plane; both print what they saw.

python transfer.py BYTES MESSAGES [COMMAND ...]    rank 0 runs COMMAND after a third of it
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np

from openmrc.verbs import Device, QpState, exchange, hostfile

PORT, PATIENCE_S = 7471, 60.0
n_bytes, n_messages = int(sys.argv[1]), int(sys.argv[2])
command = sys.argv[3:]
rank, hosts = int(os.environ["OPENMRC_RANK"]), os.environ["OPENMRC_HOSTS"].split(",")
data = np.random.default_rng(7).integers(0, 256, n_bytes * n_messages, np.uint8)

with Device.open() as device:
    cq = device.create_cq()
    qp = device.create_qp(cq)
    if rank == 1:
        room = np.zeros(len(data), np.uint8)
        qp.modify(QpState.INIT)
        for i in range(n_messages):  # before the peer can send anything
            qp.post_recv(i)
        with exchange.Listener(PORT, hostfile.secret(), "0.0.0.0") as listener:
            peer = listener.accept(qp, [device.reg_mr(room)])
        imms = [c.imm_data for c in cq.wait(n_messages, PATIENCE_S)]
        seen = {"imms": imms, "right": bool((room == data).all())}
    else:
        source = device.reg_mr(data)
        peer = exchange.connect(qp, hosts[1], PORT, hostfile.secret())
        sink = peer.regions[0]
        for i in range(n_messages):
            if command and i == n_messages // 3:
                subprocess.run(command, check=True)
            at = sink.addr + i * n_bytes
            qp.post_write_imm(
                i, source, i * n_bytes, n_bytes, remote_addr=at, rkey=sink.rkey, imm_data=i
            )
            [done] = cq.wait(timeout=PATIENCE_S)
            assert (done.wr_id, done.status.name) == (i, "SUCCESS"), done
        seen = {"planes": sorted({ev["plane"] for ev in qp.evs() if ev["packets"]})}
    ports = device.counters()["ports"]
    refused = [port["refused"] for port in ports]
    up = [port["up"] for port in ports]
    rx = [port["rx_packets"] for port in ports]
    error = qp.error
    if rank == 1:
        peer.wait(PATIENCE_S)  # the sender leaves first: it may still need an acknowledgement
    print(json.dumps({**seen, "up": up, "rx": rx, "refused": refused, "error": error}))
    peer.close()
