"""What is shipped for Prometheus and Grafana is of metrics that exist, and their own tools take it.

`promtool` and `prometheus` are those of Debian's package `prometheus`.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmrc.cli import main
from openmrc.fabric.clos import multiplane
from openmrc.ops.mapper import metrics as of_state
from openmrc.ops.mapper.history import Row
from openmrc.ops.telemetry.command import FILES, text
from openmrc.verbs import Status, metrics
from openmrc.verbs.exposition import HISTOGRAM, OPEN_METRICS, TEXT
from tests.live.two import PATIENCE_S, connected
from tests.verbs.fakes import FakeDevice, FakeQp

FABRIC = multiplane(16, 2, 10**11, 4, 4, 500_000, 250_000)
ALERTS = Path(__file__).with_name("alerts_test.yml")
MB = 1 << 20


def shown() -> metrics.Collector:
    """The metrics of a NIC with three peers and a dead link."""
    dead = frozenset({FABRIC.route(0, 5, FABRIC.ev_of_path(0, 5, 0, 2))[1]})
    qps = [FakeQp(FABRIC, peer, peer, dead) for peer in (5, 6, 15)]
    collector = metrics.Collector([FakeDevice(FABRIC, qps)])  # type: ignore[list-item]
    collector.sample()
    return collector


def of_controller() -> str:
    """The metrics of a controller to which a switch is broken and an agent is silent."""
    row = Row("plane 0 t1 3", "switch", 1, 9, None, 3, 1.0, 40, 40, 99.0, 0)
    state = {"places": [row._asdict()], "agents": [0, 7], "silent": [7]}
    return of_state.text(state, [row], TEXT)


def names() -> set[str]:
    """The names of all samples that are served, by devices and by a controller."""
    found = set(re.findall(r"^openmrc_\w+", of_controller(), re.MULTILINE))
    for family in shown().families():
        endings = ("_bucket", "_sum", "_count") if family.kind == HISTOGRAM else ("",)
        found |= {family.name + ending for ending in endings}
    return found


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"NOT TESTED: no {name}; type: sudo apt install prometheus")
    return found


@pytest.mark.parametrize("what", FILES)
def test_rules_and_dashboard_ask_for_metrics_that_exist(what: str) -> None:
    asked = set(re.findall(r"\bopenmrc_\w+", text(what)))
    assert len(asked) > 8
    assert asked - names() == set()


def test_the_command_prints_what_is_shipped(capsys: pytest.CaptureFixture[str]) -> None:
    for what in FILES:
        assert main(["ops", what]) == 0
        assert capsys.readouterr().out == text(what)
    assert main(["ops", "logs"]) == 2
    assert "invalid choice: 'logs'" in capsys.readouterr().err


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    """Panels have places of their own, their data from the variable, and what they ask is whole."""
    dashboard = json.loads(text("dashboard"))
    assert {"title", "uid", "schemaVersion", "templating", "time"} <= set(dashboard)
    variables = [variable["name"] for variable in dashboard["templating"]["list"]]
    assert variables == ["datasource", "instance", "nic"]
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
        for target in panel["targets"]:
            assert target["expr"].count("(") == target["expr"].count(")")
            assert 'instance=~"$instance",nic=~"$nic"' in target["expr"]
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids) == 12


# --- by Prometheus' own tools


def run(*command: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False)


def test_promtool_takes_the_metrics() -> None:
    for served in (shown().text(), of_controller()):
        done = run(tool("promtool"), "check", "metrics", given=served)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_controller_serves_its_places_and_silent_agents() -> None:
    served = of_controller().splitlines()
    assert 'openmrc_place_loss_ratio{place="plane 0 t1 3",kind="switch"} 1.0' in served
    assert 'openmrc_place_times{place="plane 0 t1 3"} 1' in served
    assert "openmrc_agents{} 1" in served
    assert 'openmrc_agent_silent{nic="7"} 1' in served


def test_promtool_takes_the_rules_and_each_alert_fires_where_it_should(tmp_path: Path) -> None:
    promtool = tool("promtool")
    (tmp_path / "alerts.yml").write_text(text("alerts"))
    (tmp_path / "tests.yml").write_text(ALERTS.read_text())
    done = run(promtool, "check", "rules", tmp_path / "alerts.yml")
    assert done.returncode == 0, done.stderr
    done = run(promtool, "test", "rules", tmp_path / "tests.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    alerts = set(re.findall(r"alert: (\w+)", text("alerts")))
    assert set(re.findall(r"alertname: (\w+)", ALERTS.read_text())) == alerts


@pytest.mark.parametrize("what", ["dashboard"])
def test_promtool_takes_what_the_dashboard_asks(what: str, tmp_path: Path) -> None:
    """As rules, since Grafana fills in its variables before Prometheus sees a question."""
    asked = [
        target["expr"].replace("$__rate_interval", "1m")
        for panel in json.loads(text(what))["panels"]
        for target in panel["targets"]
    ]
    rules = [{"record": f"asked:{n}", "expr": expr} for n, expr in enumerate(asked)]
    file = tmp_path / "rules.yml"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": what, "rules": rules}]}))
    done = run(tool("promtool"), "check", "rules", file)
    assert done.returncode == 0, done.stderr


CONFIGURATION = """
global: {{scrape_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: openmrc
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def test_prometheus_scrapes_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for OpenMetrics, gets that, and knows afterwards what the devices counted."""
    prometheus, types = tool("prometheus"), set()
    answer = metrics.Collector.text

    def noted(self: metrics.Collector, content_type: str) -> str:
        types.add(content_type)
        return answer(self, content_type)

    monkeypatch.setattr(metrics.Collector, "text", noted)
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    (tmp_path / "alerts.yml").write_text(text("alerts"))
    with connected(planes=2) as (a, b), metrics.Server([a.device, b.device], 0) as server:
        sink = b.device.reg_mr(bytearray(MB))
        source = a.device.reg_mr(np.ones(MB, np.uint8))
        a.qp.post_write(1, source, remote_addr=sink.addr, rkey=sink.rkey)
        assert a.cq.wait(timeout=PATIENCE_S)[0].status == Status.SUCCESS
        configuration = CONFIGURATION.format(rules=tmp_path / "alerts.yml", port=server.port)
        (tmp_path / "prometheus.yml").write_text(configuration)
        running = subprocess.Popen(
            [
                prometheus,
                f"--config.file={tmp_path / 'prometheus.yml'}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address={place}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            (rx,) = asked(place, 'openmrc_qp_rx_bytes_total{nic="1"}')
            assert float(rx["value"][1]) == MB
            assert len(asked(place, 'openmrc_port_up{job="openmrc"} == 1')) == 4
            assert asked(place, "openmrc_path_rtt_seconds_bucket")
            (up,) = asked(place, 'up{job="openmrc"}')
            assert up["value"][1] == "1"
        finally:
            running.terminate()
            running.wait(PATIENCE_S)
    assert types == {OPEN_METRICS}


def asked(place: str, query: str) -> list[dict[str, Any]]:
    """What Prometheus answers, once it has an answer."""
    address = f"http://{place}/api/v1/query?query={urllib.parse.quote(query)}"
    until = time.monotonic() + 3 * PATIENCE_S
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except OSError:  # it is not up yet
            found = []
        if found:
            return found
    raise AssertionError(f"Prometheus knows no {query}")
