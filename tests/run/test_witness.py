"""What senders know of their paths, and what `mrc why` makes of it: runs that really happened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from openmrc.cli.command import main
from openmrc.fabric.outline import SOURCE_PORT_BITS
from openmrc.report.result import Result, simulate
from openmrc.run.tables import count_table, event_table, path_table
from openmrc.run.witness import false_alarms
from openmrc.units import US
from openmrc.wire.framing import MRC_FRAMING

BASE: dict[str, Any] = {
    "seed": 5,
    "fabric": {"nics": 16, "planes": 2, "t0_down": 4, "port_rate": "100Gbps"},
    "workload": {"kind": "permutation", "size": "1MB"},
}
DEAD = {"at": "20us", "kind": "link-down", "where": "plane 1 t0 1 > t1 3"}


def ran(**more: Any) -> Result:
    return simulate({**BASE, **more}, sampled=True)


@pytest.fixture(scope="module")
def dead() -> Result:
    return ran(fault=[DEAD])


@pytest.fixture(scope="module")
def healthy() -> Result:
    return ran()


def test_packets_across_links_are_those_that_senders_sent(healthy: Result) -> None:
    (run,) = healthy.transports
    fabric = healthy.scenario.build()[0]
    links = healthy.counts
    own = links.filter(pl.col("port") < fabric.n_nics * fabric.n_planes)
    packets = run.summary()["packets"]
    assert own["packets"].sum() == packets["data"] + packets["retransmitted"]
    last = links.filter(pl.Series(fabric.port_last_hop[links["port"].to_numpy()]))
    assert last["packets"].sum() == own["packets"].sum()
    assert len(healthy.events) == len(healthy.paths) == 0


def test_watching_changes_nothing(dead: Result) -> None:
    alone = simulate({**BASE, "fault": [DEAD]})
    assert alone.transports[0].testimony is None
    assert alone.flows.equals(dead.flows)
    assert event_table(alone.transports[0]).columns == dead.events.columns
    assert len(path_table(alone.transports[0])) == len(count_table(alone.transports[0])) == 0


def test_what_senders_said_of_each_loss_adds_up_to_what_paths_lost(dead: Result) -> None:
    account = dead.account
    lost = account.filter(pl.col("became").is_in(["lost", "probe lost"]))
    assert len(lost) == dead.paths["lost"].sum() > 0
    assert (account["known_us"] > account["sent_us"]).all()
    assert account["sent_us"].is_sorted()


def test_paths_that_are_set_aside_are_those_across_the_dead_link(dead: Result) -> None:
    (run,) = dead.transports
    fabric = dead.scenario.build()[0]
    (port,) = (p for p in range(fabric.n_ports) if fabric.port_name(p) == DEAD["where"])
    aside = dead.events.filter(pl.col("event") == "avoided")
    assert len(aside) == run.counters["assumed_bad"] > 0
    for row in aside.iter_rows(named=True):
        assert port in fabric.route(row["src"], row["dst"], row["ev"])
        assert row["t_us"] > 20
    assert set(dead.paths["ev"].to_list()) == set(aside["ev"].to_list())


def test_paths_across_a_link_with_too_small_an_mtu_are_those_that_lose_full_packets_only() -> None:
    fault = {"at": "20us", "kind": "mtu", "where": DEAD["where"], "mtu": "1500B"}
    size = {"kind": "permutation", "size": "40MB"}
    seen = ran(fault=[fault], workload=size)
    fabric = seen.scenario.build()[0]
    (port,) = (p for p in range(fabric.n_ports) if fabric.port_name(p) == DEAD["where"])
    narrow = seen.paths.filter(pl.col("narrow_bytes") > 0)
    assert set(narrow["narrow_bytes"].to_list()) == {4096}
    for row in narrow.iter_rows(named=True):
        assert port in fabric.route(row["src"], row["dst"], row["ev"])


def test_a_nic_notes_its_own_port_that_goes_down_and_comes_back() -> None:
    down = {"at": "20us", "kind": "port-down", "where": "nic 3 plane 1", "for": "20us"}
    seen = ran(fault=[down])
    shift = seen.scenario.build()[0].ev_plane_shift
    rows = seen.events.filter(pl.col("qp") == -1).sort("t_us")
    assert rows.select("src", "event").rows() == [(3, "port down"), (3, "port up")]
    assert set((rows["ev"].to_numpy() >> shift).tolist()) == {1}
    assert rows["t_us"].to_list() == [20.0, 40.0]


def test_probes_that_wait_behind_data_of_other_queue_pairs_are_not_lost() -> None:
    fabric = {"nics": 32, "planes": 4, "t0_down": 4, "port_rate": "100Gbps"}
    workload = {"kind": "halving-doubling-all-reduce", "size": "2MB"}
    checked = ran(fabric=fabric, workload=workload, transport={"check_paths": True}, seed=3)
    (run,) = checked.transports
    assert run.counters["trimmed"] > 0  # queues are full, and some drop probes or answers
    assert checked.paths["lost"].sum() <= run.counters["dropped_queue"] < 10


def test_a_lost_probe_is_dated_when_its_answer_was_due() -> None:
    """Not when the next one is sent: that may be long after the repair."""
    seen = ran(fault=[{**DEAD, "for": "60us"}], workload={"kind": "permutation", "size": "4MB"})
    (run,), fabric = seen.transports, seen.scenario.build()[0]
    rtt_us = MRC_FRAMING.base_rtt_ps(fabric, 4096) / US
    assert run.counters["assumed_bad"] > 0
    first_us, last_us, lost = (
        seen.paths[name].to_numpy() for name in ("first_us", "last_us", "lost")
    )
    assert (lost > 1).any()  # probes
    assert last_us.max() <= 80 + rtt_us
    assert (first_us <= last_us).all()


def test_bins_are_joined_and_nothing_is_lost_by_it(
    monkeypatch: pytest.MonkeyPatch, dead: Result
) -> None:
    monkeypatch.setattr("openmrc.run.ports.BINS_MAX", 2)
    coarse = ran(fault=[DEAD])
    assert coarse.counts["from_us"].n_unique() <= 8
    assert coarse.counts["packets"].sum() == dead.counts["packets"].sum()
    assert set(coarse.paths["ev"].to_list()) == set(dead.paths["ev"].to_list())


def test_what_full_queues_drop_is_counted_at_their_ports_and_what_faults_lose_is_not() -> None:
    lossy = {"at": "0us", "kind": "link-loss", "where": "nic 3 plane 0 < t0", "rate": 0.05}
    crowded = ran(
        fabric={**BASE["fabric"], "trim": False},
        workload={"kind": "incast", "n": 6, "size": "1MB", "target": 3},
        fault=[lossy],
    )
    (run,), fabric = crowded.transports, crowded.scenario.build()[0]
    assert run.counters["dropped_fault"] > 0
    dropped = crowded.counts.filter(pl.col("dropped") > 0)
    assert dropped["dropped"].sum() == run.counters["dropped_queue"] > 0
    assert 3 in fabric.port_peer_nic[dropped["port"].to_numpy()]


def test_packets_and_trims_are_counted_at_each_port() -> None:
    crowded = ran(workload={"kind": "incast", "n": 6, "size": "1MB", "target": 3})
    (run,), fabric = crowded.transports, crowded.scenario.build()[0]
    links = crowded.counts
    assert links["trimmed_here"].sum() == run.counters["trimmed"] > 0
    at_queues = links.filter(pl.col("trimmed_here") > 0)["port"].unique().to_numpy()
    assert set(fabric.port_peer_nic[at_queues].tolist()) == {3}
    from_nics = links.filter(pl.col("port") < fabric.n_nics * fabric.n_planes)
    packets, out = (int(from_nics[name].sum()) for name in ("packets", "packets_out"))
    assert packets < out == run.counters["injected"]  # with answers
    assert links["packets_out"].sum() == run.counters["link_traversals"]
    assert links["marked"].sum() == run.counters["ecn_marked"] > 0
    loads = links.group_by("port").agg(pl.col("busy_ns").sum(), pl.col("until_us").max())
    busiest = loads.sort("busy_ns")[-1]
    assert fabric.port_peer_nic[busiest["port"][0]] == 3  # a link is never busy for longer than
    assert 0.9 < busiest["busy_ns"][0] / 1000 / busiest["until_us"][0] <= 1.0  # there is time


def test_damaged_packets_are_counted_at_the_ports_of_nics_that_get_them() -> None:
    damages = {"at": "0us", "kind": "link-corrupt", "where": "nic 3 plane 0 > t0", "rate": 0.1}
    hurt = ran(fault=[damages])
    (run,), fabric = hurt.transports, hurt.scenario.build()[0]
    found = hurt.counts.filter(pl.col("damaged") > 0)
    assert found["damaged"].sum() == run.counters["dropped_corrupt"] > 0
    ports = found["port"].unique().to_numpy()
    assert fabric.port_last_hop[ports].all()
    assert all(" plane 0 " in f" {fabric.port_name(port)} " for port in ports.tolist())


def test_what_a_link_loses_is_missing_at_its_other_end() -> None:
    loses = {"at": "0us", "kind": "link-loss", "where": DEAD["where"], "rate": 0.1}
    (run,), fabric = (hurt := ran(fault=[loses])).transports, hurt.scenario.build()[0]
    found = hurt.counts.filter(pl.col("gone") > 0)
    assert {fabric.port_name(port) for port in found["port"].to_list()} == {DEAD["where"]}
    assert found["gone"].sum() == run.counters["dropped_fault"] > 0


def test_what_a_port_that_is_down_does_not_send_is_missing_on_no_link(dead: Result) -> None:
    """But for what was on its way when it went down."""
    (run,) = dead.transports
    assert dead.counts["gone"].sum() < run.counters["dropped_fault"] / 2


def test_a_run_that_waits_for_its_last_packet_keeps_short_ticks_where_it_was_busy() -> None:
    cut = {"at": "20us", "kind": "port-down", "where": "nic 3 plane *", "for": "5ms"}
    waits = ran(fault=[cut])
    assert waits.transports[0].testimony is not None
    busy = waits.counts.filter(pl.col("until_us") < 100)
    narrow = (busy["until_us"] - busy["from_us"]).max()
    assert isinstance(narrow, float)
    assert narrow < waits.transports[0].testimony.bin_ps / US / 4


HASHED = {"srv6": False}


def test_where_switches_hash_a_path_is_its_plane_and_its_source_port() -> None:
    hashed = ran(transport=HASHED, fault=[{**DEAD, "where": "nic 3 plane 1 > t0"}])
    fabric = hashed.scenario.build()[0]
    assert len(hashed.paths) > 0
    assert set((hashed.paths["ev"].to_numpy() >> SOURCE_PORT_BITS).tolist()) == {1}
    assert set(hashed.paths["src"].to_list()) == {3}
    links = (
        hashed.counts.filter(pl.col("packets") > 0).group_by("port").agg(pl.col("packets").sum())
    )
    sent = dict(links.rows())
    up = [port for port in sent if fabric.port_name(port).startswith("plane 0 t0 2 >")]
    assert len(up) == 4
    assert max(sent[port] for port in up) - min(sent[port] for port in up) <= 32  # rounded, by bin


def test_events_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openmrc.run.witness.EVENTS_MAX", 1)
    (run,) = ran(fault=[DEAD]).transports
    assert run.testimony is not None
    kept = len(run.testimony.events["at_ps"])
    assert kept == 1
    assert kept + run.testimony.events_left_out >= run.counters["assumed_bad"]


def test_of_who_keeps_no_account_of_paths_ports_are_watched() -> None:
    (single,) = ran(transport={"paths": "oblivious"}).transports
    assert single.testimony is not None
    assert not single.testimony.account


def why(result: Result, directory: Path, capsys: Any, *options: str) -> Any:
    result.save(directory)
    capsys.readouterr()
    assert main(["why", str(directory), "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)["transports"]


def test_a_dead_link_is_named_with_its_direction_and_its_time(
    dead: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (answer,) = why(dead, tmp_path, capsys)
    (finding,) = answer["findings"]
    could_be = {finding["where"], *finding["one_of"]}
    assert DEAD["where"] in could_be
    assert 20 < finding["since_us"] < 60
    assert answer["nothing_broke"] is False


def test_the_answer_does_not_read_what_was_planned_to_break(
    dead: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = why(dead, tmp_path, capsys)
    plan = tmp_path / "scenario.toml"
    text = plan.read_text(encoding="utf-8")
    plan.write_text(text.partition("[[fault]]")[0], encoding="utf-8")
    assert "link-down" in text
    assert main(["why", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["transports"] == before


def test_nothing_broke_where_nothing_did(
    healthy: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (answer,) = why(healthy, tmp_path, capsys)
    assert answer["nothing_broke"] is True
    assert answer["text"].endswith(" No path lost a packet.")


def test_congestion_is_no_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    incast = ran(workload={"kind": "incast", "n": 12, "size": "500kB"})
    (answer,) = why(incast, tmp_path, capsys)
    assert answer["nothing_broke"] is True
    assert incast.transports[0].counters["trimmed"] > 100
    assert "which is congestion and no damage" in answer["text"]
    assert "most of them for nic 0" in answer["text"]


def test_a_queue_that_is_always_full_is_no_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    incast = ran(
        fabric={"nics": 32, "planes": 4, "t0_down": 8, "port_rate": "100Gbps"},
        workload={"kind": "incast", "n": 24, "size": "1MB"},
    )
    assert incast.transports[0].counters["assumed_bad"] > 0  # late, and taken for lost
    (answer,) = why(incast, tmp_path, capsys)
    assert answer["findings"] == []


def test_a_report_ranks_places_by_how_long_paths_were_set_aside(
    dead: Result, healthy: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (answer,) = why(dead, tmp_path / "dead", capsys, "--report")
    (finding,) = answer["findings"]
    first, *others = answer["report"]
    assert {row["what"] for row in others} <= {"to watch"}
    assert (first["where"], first["lost"]) == (finding["where"], finding["lost"])
    end_us = dead.transports[0].summary()["sim_time_us"]
    aside = dead.events.filter(pl.col("event") == "avoided")  # none came back
    assert first["aside_us"] == pytest.approx((end_us - aside["t_us"]).sum(), abs=0.01)
    assert main(["why", str(tmp_path / "dead"), "--report"]) == 0
    assert "1 place broke, and no queue pair failed" in capsys.readouterr().out
    (quiet,) = why(healthy, tmp_path / "healthy", capsys, "--report")
    assert quiet["report"] == []
    assert main(["why", str(tmp_path / "healthy"), "--report"]) == 0
    assert capsys.readouterr().out.endswith("mrc: nothing broke\n")


def test_a_step_a_job_or_a_time_that_is_not_there_is_refused(
    dead: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dead.save(tmp_path)
    for options, said in (
        (["--job", "a"], "--job a: is not there; the run's jobs: none"),
        (["--step", "3"], "--step: the run has no steps; only training has"),
        (["--since", "3"], "--since: '3' has no unit"),
        (["--transport", "x"], "--transport x: is not there; the run has mrc"),
    ):
        assert main(["why", str(tmp_path), *options]) == 2
        assert said in capsys.readouterr().err
    assert main(["why", str(tmp_path / "no")]) == 2
    assert "is not there; name a directory" in capsys.readouterr().err
    (tmp_path / "summary.json").write_text("[]", encoding="utf-8")
    assert main(["why", str(tmp_path)]) == 2
    assert "was not written by mrc run --out" in capsys.readouterr().err


def test_what_is_still_broken_is_told_from_any_time_on(
    dead: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (answer,) = why(dead, tmp_path, capsys, "--since", "51us")
    (finding,) = answer["findings"]
    assert (finding["where"], finding["ended_us"][1]) == (DEAD["where"], None)


@pytest.mark.parametrize("where", ["nic 3 plane 1 > t0", "nic 7 plane 0 < t0"])
def test_where_switches_hash_a_lossy_link_of_a_nic_is_named(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lossy = {"at": "5us", "kind": "link-loss", "where": where, "rate": 0.1}
    hashed = ran(transport=HASHED, workload={"kind": "all-to-all", "size": "4MB"}, fault=[lossy])
    (answer,) = why(hashed, tmp_path, capsys)
    (finding,) = answer["findings"]
    assert (finding["where"], finding["one_of"], finding["dead"]) == (where, [], False)


@pytest.mark.parametrize("fault", [DEAD, {**DEAD, "kind": "link-loss", "rate": 1.0}])
def test_where_switches_hash_a_port_says_what_packets_do_not_tell(
    fault: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was down, or what it sent did not arrive; packets may cross any of four uplinks."""
    all_to_all = {"kind": "all-to-all", "size": "1MB"}
    hashed = ran(transport=HASHED, workload=all_to_all, fault=[fault])
    (answer,) = why(hashed, tmp_path, capsys, "--report")
    assert [(it["where"], it["one_of"]) for it in answer["findings"]] == [(DEAD["where"], [])]
    assert "Plane 1 t0 1 to t1 3 let nothing through" in answer["text"]
    assert main(["why", str(tmp_path), "--page", str(tmp_path / "page.html")]) == 0


def test_where_switches_hash_nothing_broke_if_nothing_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hashed = ran(transport=HASHED, workload={"kind": "all-to-all", "size": "500kB"})
    (answer,) = why(hashed, tmp_path, capsys)
    assert answer["nothing_broke"] is True


def test_who_knows_no_paths_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lossy = {"at": "0us", "kind": "link-loss", "where": "nic 3 plane 0", "rate": 0.05}
    oblivious = ran(transport={"paths": "oblivious"}, fault=[lossy])
    (answer,) = why(oblivious, tmp_path, capsys)
    assert (answer["paths_known"], answer["nothing_broke"]) == (False, False)
    assert [it["where"] for it in answer["findings"]] == ["nic 3 plane 0"]


def test_losses_that_proved_to_be_none_are_taken_back_each_by_itself() -> None:
    """By path, kind and time of departure, which is known to 1 ns of packets, 128 ns of probes."""
    losses = {
        "ev_at": np.array([7, 7, 7, 8, 7]),
        "probe": np.array([0, 0, 0, 0, 1]),
        "sent_ps": np.array([10 * US, 20 * US, 30 * US, 10 * US, 20 * US]),
    }
    late = {
        "ev_at": np.array([7, 7, 9, 7, 8]),
        "probe": np.array([0, 1, 0, 0, 0]),
        "sent_ps": np.array([20, 20, 10, 30, 10]) * US - np.array([999, 127_999, 0, 1000, -1]),
    }
    assert false_alarms(losses, late).tolist() == [False, True, False, False, True]
    none = {name: column[:0] for name, column in late.items()}
    assert not false_alarms(losses, none).any()


def test_a_run_has_no_losses_of_packets_that_only_came_late() -> None:
    """Of jitter alone: what was judged lost came after all, all of it, and is taken back."""
    seen = ran(fabric={**BASE["fabric"], "jitter": "12us"})
    (run,) = seen.transports
    assert run.counters["dropped_fault"] == 0
    assert run.counters["false_alarms"] > 0
    assert seen.paths["lost"].sum() <= run.counters["false_alarms"] // 10
