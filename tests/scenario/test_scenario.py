from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from openmrc.errors import InputError
from openmrc.fabric.actions import PORT_DENY, PORT_LOSS
from openmrc.fabric.dscp import DEFAULT
from openmrc.fabric.queues import Queues
from openmrc.scenario.fabric import FABRICS, FabricSection, FatTree, Multiplane
from openmrc.scenario.jobs import Jobs
from openmrc.scenario.patterns import Incast, Permutation
from openmrc.scenario.scenario import (
    Scenario,
    as_scenario,
    demo_scenario,
    load_scenario,
    make_scenario,
    parse_scenario,
    peer_scenario,
)
from openmrc.scenario.transports import AnyTransport, TransportSection
from openmrc.scenario.workloads import JOB_WORKLOADS
from openmrc.sim.mrc import htsim
from openmrc.sim.mrc.transport import Transport
from openmrc.traffic.traffic import Traffic
from openmrc.units import US
from tests.scenario.files import CM, TOPO

SMALLEST = '[workload]\nkind = "permutation"\n'


def refusal(text: str, *overrides: str) -> str:
    """What a scenario is refused with, when read or when built."""
    with pytest.raises(InputError) as error:
        parse_scenario(text, overrides, source="x.toml").build()
    return str(error.value)


def every_scenario(folder: Path) -> list[Scenario]:
    """One for each kind of fabric and workload, and one with faults, several transports, a stop."""
    (folder / "a.topo").write_text(TOPO)
    (folder / "a.cm").write_text(CM)
    (folder / "a.goal").write_text("num_ranks 0\n")
    (folder / "a.0.et").write_bytes(b"")
    (folder / "a.csv").write_text("0,1\n0,0\n")
    files = {"htsim": 'cm = "a.cm"', "goal": 'file = "a.goal"', "chakra": 'traces = "*.et"'}
    files["matrix"] = 'file = "a.csv"'
    topo = {"htsim": 'topo = "a.topo"', "links": 'file = "a.csv"'}
    fabrics = [f'[fabric]\nkind = "{k}"\n{topo.get(k, "")}\n' for k in FABRICS]
    loads = [f'[workload]\nkind = "{k}"\n{files.get(k, "")}\n' for k in JOB_WORKLOADS]
    texts = [fabric + SMALLEST for fabric in fabrics] + loads
    texts.append(
        'name = "a \\"quoted\\" name\\u0007"\nseed = 9\n[stop]\ntime = "2.5ms"\n'
        '[[transport]]\n[[transport]]\npaths = "single"\nmpr = 256\n'
        '[[fault]]\nat = "1us"\nkind = "link-loss"\nwhere = "plane 0 t0 0 > t1 0"\nrate = 0.25\n'
        '[[fault]]\nat = "2us"\nkind = "port-down"\nwhere = "nic 3 plane 1"\nfor = "1ms"\n'
        '[[fault]]\nat = "3us"\nkind = "transceiver-down"\n'
        'where = ["nic 3 plane 1", "nic 4 plane 0"]\nmtbf = "1ms"\nmttr = "10us"\nseed = 9\n'
        '[[fault]]\nat = "4us"\nkind = "link-slow"\nwhere = "plane 0 t0 * - t1 *"\nfactor = 0.1\n'
        'share = 0.5\nperiod = "1ms"\nduty = 0.25\nuntil = "9ms"\n'
        '[[fault]]\nat = "5us"\nkind = "deny"\nwhere = "plane 0"\nnics = "0-3, 5"\n' + SMALLEST
    )
    return [parse_scenario(text, base=folder) for text in texts] + [demo_scenario()]


def test_the_smallest_file_gets_the_documented_defaults() -> None:
    scenario = parse_scenario(SMALLEST)
    assert (scenario.name, scenario.seed) == ("scenario", 1)
    assert scenario.fabric == Multiplane()
    assert scenario.transports == (TransportSection(name="mrc"),)
    assert scenario.workload == Permutation()
    assert scenario.workload.size == 2_000_000
    assert scenario.stop.time is None
    assert (scenario.report.qp, scenario.report.samples) == (None, 500)


def test_the_last_queue_pair_and_the_most_samples_can_be_asked_for() -> None:
    scenario = parse_scenario(SMALLEST, ["report.qp=63", "report.samples=1000"])
    scenario.build()
    assert (scenario.report.qp, scenario.report.samples) == (63, 1000)
    assert parse_scenario(scenario.to_toml()) == scenario


def test_defaults_are_those_of_the_simulator() -> None:
    assert TransportSection().build() == Transport()
    assert Multiplane().queues() == Queues()


def test_every_key_reaches_the_simulator() -> None:
    transport = {
        "name": "x",
        "paths": "single",
        "cc": "none",
        "rules": "peer",
        "evs_active": 32,
        "evs_backup": 16,
        "pmtu": 2048,
        "mpr": 256,
        "sack_bytes": 999,
        "convergence": "7ms",
        "base_rtt": "9us",
        "rto_exponent": 5,
        "linear_cnt": 3,
        "exp_cnt": 4,
        "trim_nack": False,
        "dynamic_mpr": True,
        "share_window": True,
        "srv6": True,  # false in the next test: not of peer runs, nor is the last
        "trim": True,
        "ecn_skip": True,
    }
    queues = {
        "trim": False,
        "queue": "1kB",
        "queue_last_hop": "2kB",
        "control_queue": "3kB",
        "ecn_low": 0.1,
        "ecn_high": 0.3,
        "ecn_last_hop": True,
        "forwarding": "usid",
        "switching": "cut-through",
        "dscp": "trimmed=11",
    }
    tables = {"fabric": queues, "transport": transport}
    overrides = [
        f"{table}.{key}={value}" for table in tables for key, value in tables[table].items()
    ]
    scenario = parse_scenario(
        SMALLEST, [text.replace("True", "true").replace("False", "false") for text in overrides]
    )

    # what does nothing with `paths = "single"`, or beside carriers: the next tests have them
    assert {field.encode_name for field in msgspec.structs.fields(TransportSection)} == {
        *transport,
        "always_skip_after",
        "check_paths",
        "ev_fields",
        "freezing",
        "routing",
        "skip_turns",
    }
    # jitter is refused with cut-through
    fields = {field.encode_name for field in msgspec.structs.fields(FabricSection)}
    assert fields == {*queues, "jitter", "sids", "trim_lengths"}
    assert parse_scenario(SMALLEST, ["fabric.sids=uA"]).fabric.build().sids == "uA"
    trims = parse_scenario(SMALLEST, ["fabric.trim_lengths=outer"]).fabric.build()
    assert (trims.trim_lengths, scenario.fabric.build().trim_lengths) == ("outer", "all")
    late = parse_scenario(SMALLEST, ["fabric.jitter=3us"]).fabric.build()
    assert (late.jitter_ps, scenario.fabric.build().jitter_ps) == (3_000_000, 0)
    assert scenario.transports[0].build() == Transport(
        name="x",
        paths="single",
        cc="none",
        rules="peer",
        evs_active=32,
        evs_backup=16,
        pmtu=2048,
        mpr=256,
        sack_bytes=999,
        convergence_ps=7_000_000_000,
        base_rtt_ps=9_000_000,
        rto_exponent=5,
        linear_cnt=3,
        exp_cnt=4,
        trim_nack=False,
        dynamic_mpr=True,
        share_window=True,
        trim=True,
    )
    assert scenario.fabric.build().cut_through
    assert scenario.fabric.build().dscps == DEFAULT._replace(trimmed=11)
    assert not parse_scenario(SMALLEST).fabric.build().cut_through
    assert scenario.fabric.queues() == Queues(
        trim=False,
        queue_bytes=1000,
        queue_last_hop_bytes=2000,
        control_queue_bytes=3000,
        ecn_low=0.1,
        ecn_high=0.3,
        ecn_last_hop=True,
        by_usid=True,
    )


def mrc(section: AnyTransport) -> TransportSection:
    """A transport that is MRC, as its own type."""
    assert isinstance(section, TransportSection)
    return section


def test_keys_of_one_choice_of_paths_reach_the_simulator() -> None:
    built = {
        paths: mrc(
            parse_scenario(
                SMALLEST, [f"transport.paths={paths}", f"transport.{key}={value}"]
            ).transports[0]
        ).build()
        for paths, key, value in (
            ("mrc", "always_skip_after", "6"),
            ("reps", "freezing", "8ms"),
            ("single", "convergence", "auto"),
        )
    }
    assert [each.always_skip_after for each in built.values()] == [6, 0, 0]
    assert [each.freezing_ps for each in built.values()] == [10 * 10**9, 8 * 10**9, 10 * 10**9]
    assert [each.convergence_ps for each in built.values()] == [50 * 10**9] * 3


def test_the_variants_of_mrc_are_keys_of_each_transport() -> None:
    text = (
        '[[transport]]\nname = "a"\n[[transport]]\nname = "b"\n[workload]\nkind = "permutation"\n'
    )
    overrides = ["transport.b.srv6=false", "transport.b.trim=false", "transport.a.ecn_skip=false"]
    a, b = (mrc(section).build() for section in parse_scenario(text, overrides).transports)
    assert (a.srv6, a.trim, a.ecn_skip, a.hashed) == (True, None, False, False)
    assert (b.srv6, b.trim, b.ecn_skip, b.hashed) == (False, False, True, True)
    (structured,) = parse_scenario(
        SMALLEST, ["transport.srv6=false", "transport.ev_fields=true"]
    ).transports
    assert (mrc(structured).build().hashed, mrc(structured).build().carried) == (False, False)
    both = parse_scenario(text, ["transport.trim=false"]).transports
    assert [mrc(section).trim for section in both] == [False, False]
    (auto,) = parse_scenario(SMALLEST, ["transport.trim=auto"]).transports
    assert mrc(auto).trim is None
    (reps,) = parse_scenario(SMALLEST, ["transport.paths=reps"]).transports
    assert (reps.name, mrc(reps).build().paths) == ("reps", "reps")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["srv6=0"], "transport.srv6: 0 is refused; accepted: true or false"),
        (["trim=no"], "transport.trim: 'no' is refused; accepted: true or false or \"auto\""),
        (["srv6=false", "rules=peer"], "transport.srv6: rules = 'peer' hashes EVs by itself"),
        (["ecn_skip=false", "paths=reps"], "transport.ecn_skip: 'reps' skips no path anyway"),
        (["ecn_skip=false", "paths=single"], "transport.ecn_skip: 'single' skips no path"),
        (["ecn_skip=false", "paths=oblivious"], "transport.ecn_skip: 'oblivious' skips"),
    ],
)
def test_a_variant_that_would_change_nothing_is_refused(keys: list[str], words: str) -> None:
    def build() -> None:
        parse_scenario(SMALLEST, [f"transport.{key}" for key in keys]).transports[0].build()

    with pytest.raises(InputError) as error:
        build()
    assert words in str(error.value)


def test_a_scenario_writes_itself_out_with_every_default_and_loads_as_equal(tmp_path: Path) -> None:
    for scenario in every_scenario(tmp_path):
        text = scenario.to_toml()
        # Read from somewhere else: the files it names are still found.
        assert parse_scenario(text, base=Path("/")) == scenario
        for section in (scenario.fabric, scenario.workload, *scenario.transports):
            for field in msgspec.structs.fields(section):
                assert f"\n{field.encode_name} = " in text


def test_full_bisection_is_the_default_of_a_fat_tree_too() -> None:
    fabric = FatTree(nics=64, tiers=3, t0_down=4).build()
    assert fabric.n_nics == 64
    assert fabric.sw_n_up.tolist() == [4] * 32 + [0] * 16


def test_an_incast_with_a_victim_has_one_message_more() -> None:
    assert Incast(n=4).build(16, seed=1).n_msgs == 4
    assert Incast(n=4, victim=True).build(16, seed=1).n_msgs == 5


def test_a_random_ring_is_another_ring_over_the_same_nics() -> None:
    text = '[workload]\nkind = "ring-all-reduce"\nranks = 8\nsize = "8kB"\n'
    _, near, _ = parse_scenario(text).build()
    _, mixed, _ = parse_scenario(text, ["workload.order=random"]).build()
    assert near.qp_src.tolist() == list(range(8))
    assert sorted(mixed.qp_src.tolist()) == list(range(8))
    assert mixed.qp_src.tolist() != near.qp_src.tolist()


def workload(text: str, nics: int = 16) -> Traffic:
    _, traffic, _ = parse_scenario(f"[fabric]\nnics = {nics}\n[workload]\n{text}").build()
    return traffic


@pytest.mark.parametrize(
    ("text", "messages", "total"),
    [
        ('kind = "ring-all-reduce"\nranks = 8\nsize = "8kB"', 14 * 8, 14 * 8000),
        ('kind = "halving-doubling-all-reduce"\nranks = 8\nsize = "8kB"', 6 * 8, 14 * 8000),
        ('kind = "reduce-scatter"\nranks = 8\nsize = "8kB"', 7 * 8, 7 * 8000),
        ('kind = "all-gather"\nranks = 8\nsize = "8kB"\nchunks = 2', 2 * 7 * 8, 7 * 8000),
        ('kind = "all-to-all"\nranks = 8\nsize = "8kB"\nat_once = 2', 7 * 8, 7 * 8000),
        ('kind = "broadcast"\nranks = 8\nsize = "8kB"\nchunks = 4', 4 * 7, 7 * 8000),
        ('kind = "broadcast"\nranks = 8\nsize = "8kB"\nshape = "tree"', 7, 7 * 8000),
        ('kind = "send-recv"\nranks = 8\nsize = "8kB"\nsteps = 3', 3 * 8, 3 * 8 * 8000),
        ('kind = "all-to-all"\ngroup = 4\nsize = "8kB"', 3 * 16, 3 * 4 * 8000),
    ],
)
def test_a_collective_sends_what_it_must(text: str, messages: int, total: int) -> None:
    traffic = workload(text)
    assert (traffic.n_msgs, traffic.n_sends) == (messages, messages)
    assert traffic.msg_total_bytes.sum() == total
    assert traffic.jobs == ()


def test_a_ring_is_listed_up_to_a_million_messages_or_as_it_is_told() -> None:
    ring = 'kind = "ring-all-reduce"\nsize = "1GB"\n'
    assert workload(ring).n_msgs == 30 * 16
    assert workload(ring + 'flows = "series"').n_msgs == 16
    assert workload(ring + 'flows = "series"\nchannels = 2\nchunks = 3').n_msgs == 16 * 6
    # 2(n - 1)n: 707 ranks have 998,284 messages, 708 have 1,001,112
    assert workload(ring, nics=707).n_msgs == 998_284
    assert workload(ring, nics=708).n_msgs == 708
    assert workload(ring + 'flows = "message"', nics=708).n_msgs == 1_001_112


def test_groups_are_of_ranks_in_a_row() -> None:
    near = workload('kind = "all-gather"\ngroup = 4\nflows = "series"')
    assert near.qp_src.tolist() == list(range(16))
    assert near.qp_dst.tolist() == [1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12]
    assert near.kind == "all-gather"
    mixed = workload('kind = "all-gather"\ngroup = 4\norder = "random"\nflows = "series"')
    assert sorted(mixed.qp_src.tolist()) == list(range(16))
    assert mixed.qp_src.tolist() != list(range(16))


def test_every_rank_draws_its_time_to_compute_once() -> None:
    ring = 'kind = "ring-all-reduce"\ncompute = "10us"\n'
    assert set(workload(ring).msg_compute_ps.tolist()) == {10 * US}
    times = workload(ring + "jitter = 0.2").msg_compute_ps.reshape(16, 30)
    assert (times == times[:, :1]).all()
    assert len(set(times[:, 0].tolist())) == 16
    assert 8 * US <= times.min() < 9 * US < 11 * US < times.max() <= 12 * US
    assert times.tolist() == workload(ring + "jitter = 0.2").msg_compute_ps.reshape(16, 30).tolist()


JOBS = """
[fabric]
nics = 16
[workload]
kind = "jobs"
[[workload.job]]
name = "left"
kind = "ring-all-reduce"
nics = "0-3"
size = "4kB"
[[workload.job]]
kind = "incast"
nics = [15, 4, 5, 6, 7]
start = "3us"
n = 2
size = "1kB"
"""


def test_jobs_are_placed_and_start_when_they_should() -> None:
    scenario = parse_scenario(JOBS)
    _, traffic, _ = scenario.build()
    assert traffic.jobs == ("left", "incast")
    assert traffic.msg_src.tolist() == [0] * 6 + [1] * 6 + [2] * 6 + [3] * 6 + [7, 6]
    assert traffic.msg_dst.tolist()[-2:] == [15, 15]
    assert traffic.msg_start_ps.tolist() == [0] * 24 + [3 * US] * 2
    assert parse_scenario(scenario.to_toml()) == scenario
    assert '\nnics = "15, 4, 5, 6, 7"\n' in scenario.to_toml()


def test_set_reaches_a_job_by_its_name() -> None:
    overrides = ["workload.left.size=8kB", "workload.incast.start=1us", "workload.left.nics=all"]
    _, traffic, _ = parse_scenario(JOBS, overrides).build()
    assert traffic.n_msgs == 30 * 16 + 2
    assert traffic.msg_total_bytes[:480].sum() == 30 * 8000
    assert traffic.msg_start_ps[-1] == US
    assert refusal(JOBS, "workload.right.size=8kB") == (
        "--set workload.right.size: there is no job 'right'; accepted: left, incast"
    )
    assert refusal(JOBS, "workload.left.size=8").startswith("--set: workload.job[0].size: 8 ")
    assert refusal(JOBS, "workload.size=8kB") == (
        "--set: workload.size: unknown key; accepted here: kind, job"
    )


def test_two_jobs_of_one_kind_draw_each_for_itself() -> None:
    job = '[[workload.job]]\nname = "{}"\nkind = "permutation"\n'
    _, traffic, _ = parse_scenario(
        '[workload]\nkind = "jobs"\n' + job.format("a") + job.format("b")
    ).build()
    first, second = traffic.qp_dst[:64].tolist(), traffic.qp_dst[64:].tolist()
    assert sorted(first) == sorted(second) == list(range(64))
    assert first != second


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ('kind = "stream"\nnics = "0-99"', "workload.job[0].nics: '0-99': NICs 0 to 63 exist"),
        ('kind = "stream"\nnics = [3]', "workload.job[0].nics: '3': two or more different NICs"),
        ('kind = "stream"\nnics = [3, "x"]', "workload.job[0].nics: '3, x' is refused; accepted: "),
        ('kind = "stream"\nnics = 3', "workload.job[0].nics: 3 is refused; accepted: text"),
        ('kind = "stream"\nstart = 3', "workload.job[0].start: 3 "),
        (
            'kind = "stream"\nnick = "all"',
            "workload.job[0].nick: unknown key; did you mean 'nics'?",
        ),
        (
            'kind = "stream"\nnics = "0-3"\ndst = 4',
            "workload.job[0].dst: nic 4 does not exist; 0 to 3 do",
        ),
        ('kind = "jobs"', "workload.job[0].kind: 'jobs' is refused; accepted: permutation, "),
        ('size = "1B"', "workload.job[0].kind: is missing; accepted: permutation, "),
        (
            'kind = "stream"\n[[workload.job]]\nkind = "stream"',
            "workload.job[1].name: 'stream' is already the name of another job; give each",
        ),
        (
            'kind = "halving-doubling-all-reduce"\nnics = "0-5"',
            "workload.job[0].ranks: 6 is no power of two, which halving and doubling needs; 4",
        ),
    ],
)
def test_a_job_that_cannot_be_is_refused(job: str, message: str) -> None:
    text = f'[workload]\nkind = "jobs"\n[[workload.job]]\n{job}\n'
    assert refusal(text).startswith(f"x.toml: {message}")


def test_a_list_of_jobs_is_one() -> None:
    jobs = '[workload]\nkind = "jobs"\n'
    assert refusal(jobs) == (
        "x.toml: workload.job: there is none; write [[workload.job]] and its keys"
    )
    assert refusal(jobs + '[workload.job]\nkind = "stream"') == (
        "x.toml: workload.job: is one table; it is a list, write [[workload.job]]"
    )
    assert refusal(jobs + "job = [3]") == (
        "x.toml: workload.job[0]: 3 is not a table; write [workload.job[0]] and its keys below it"
    )
    assert refusal(jobs + 'size = "1MB"').startswith("x.toml: workload.size: unknown key; ")


def test_files_are_relative_to_the_scenario_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "a.topo").write_text(TOPO)
    (tmp_path / "x.toml").write_text('[fabric]\nkind = "htsim"\ntopo = "a.topo"\n' + SMALLEST)
    fabric, _, _ = load_scenario(tmp_path / "x.toml").build()
    assert fabric.n_nics == 16


def test_a_peer_run_takes_the_peers_parameters(tmp_path: Path) -> None:
    (tmp_path / "a.topo").write_text(TOPO)
    (tmp_path / "one.cm").write_text(CM)
    scenario = peer_scenario(
        str(tmp_path / "a.topo"), str(tmp_path / "one.cm"), ["transport.paths=oblivious"]
    )
    (transport,) = scenario.transports
    assert isinstance(transport, TransportSection)
    assert scenario.name == "one"
    assert scenario.fabric.ecn_last_hop
    assert (transport.name, transport.rules) == ("oblivious", "peer")
    assert (transport.pmtu, transport.evs_active, transport.evs_backup) == (4086, 64, 0)
    _, traffic, _ = scenario.build()
    assert traffic.msg_bytes.tolist() == [4096]


@pytest.mark.parametrize(
    ("text", "turns"),
    [('"auto"', None), ('"rtt"', "rtt"), ('"squared"', "squared"), ("3", 3)],
)
def test_turns_to_skip_are_a_number_or_a_rule(text: str, turns: int | str | None) -> None:
    scenario = parse_scenario(SMALLEST, [f"transport.skip_turns={text}"])
    assert mrc(scenario.transports[0]).build().skip_turns == turns


def test_a_run_of_the_peers_files_skips_as_the_peer_does(tmp_path: Path) -> None:
    """And says so: by itself `rules = "peer"` is the public text's one turn."""
    (tmp_path / "a.topo").write_text(TOPO)
    (tmp_path / "one.cm").write_text(CM)
    files = (str(tmp_path / "a.topo"), str(tmp_path / "one.cm"))
    for change, turns in (([], "squared"), (["transport.skip_turns=1"], 1)):
        assert mrc(peer_scenario(*files, change).transports[0]).build().skip_turns == turns
    assert htsim.endpoints(Transport(rules="peer"))["skip_turns"] == 1
    assert htsim.endpoints(Transport(rules="peer", skip_turns="rtt"))["skip_turns"] == 0


def test_set_reaches_every_transport_or_one() -> None:
    two = SMALLEST + '[[transport]]\n[[transport]]\nname = "v1.5"\npaths = "single"\n'
    both = parse_scenario(two, ["transport.pmtu=2048", "transport.v1.5.pmtu=1024"])
    assert [t.pmtu for t in both.transports] == [2048, 1024]
    assert refusal(two, "transport.v2.pmtu=1024") == (
        "--set transport.v2.pmtu: there is no transport 'v2'; accepted: mrc, v1.5"
    )


def test_set_takes_words_quantities_and_numbers() -> None:
    overrides = ["workload.size=3MB", "seed=7", "fabric.trim=false", "name=run 7", "stop.time=1ms"]
    scenario = parse_scenario(SMALLEST, overrides)
    assert scenario.workload == Permutation(size=Permutation().size.parse("3MB"))
    assert (scenario.seed, scenario.fabric.trim, scenario.name) == (7, False, "run 7")
    assert scenario.stop.time == 1_000_000_000


def test_dicts_are_a_scenario_as_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "a.cm").write_text(CM)
    tables = {
        "seed": np.int64(9),
        "fabric": {"nics": np.int32(16), "ecn_low": np.float64(0.1), "t0_down": 4},
        "transport": ({}, {"paths": "single"}),
        "workload": {"kind": "htsim", "cm": tmp_path / "a.cm"},
        "fault": [{"at": "1us", "kind": "link-loss", "where": "plane 0 t0 0 - t1 0", "rate": 1}],
    }
    text = (
        "seed = 9\n[fabric]\nnics = 16\necn_low = 0.1\nt0_down = 4\n"
        '[[transport]]\n[[transport]]\npaths = "single"\n[workload]\nkind = "htsim"\n'
        'cm = "a.cm"\n[[fault]]\nat = "1us"\nkind = "link-loss"\nwhere = "plane 0 t0 0 - t1 0"\n'
        "rate = 1\n"
    )
    assert make_scenario(tables) == parse_scenario(text, base=tmp_path)
    assert make_scenario(tables, {"seed": 5}, name="x").name == "x"
    assert make_scenario(tables, {"seed": 5}).seed == 5


def test_a_scenario_is_whatever_can_be_made_one(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(SMALLEST)
    scenario = load_scenario(tmp_path / "x.toml")
    assert as_scenario(scenario) is scenario
    assert as_scenario(tmp_path / "x.toml") == scenario
    assert as_scenario(str(tmp_path / "x.toml")) == scenario
    assert as_scenario({"name": "x", "workload": {"kind": "permutation"}}) == scenario
    with pytest.raises(InputError, match=r"scenario: 3 is none; accepted: a Scenario, the name"):
        as_scenario(3)  # type: ignore[arg-type]


def test_replace_changes_what_was_written_not_what_was_derived() -> None:
    tables = {"workload": {"kind": "permutation"}, "fabric": {"nics": 8}}
    first = make_scenario(tables)
    second = first.replace({"transport.paths": "single", "fabric.kind": "fat-tree"})
    assert (second.transports[0].name, second.fabric) == ("single", FatTree(nics=8))
    assert first.replace({"seed": 1}) == first == make_scenario(tables)
    third = second.replace({"workload.size": Permutation().size, "stop.time": "1ms"})
    assert third.workload == Permutation()
    assert third.replace({"stop.time": None}) == second
    assert parse_scenario(SMALLEST, source="x.toml").replace({"seed": 2}).source == "x.toml"


def test_replace_reaches_one_fault(tmp_path: Path) -> None:
    fault = '[[fault]]\nat = "1us"\nkind = "link-loss"\nwhere = "plane 0 t0 0 - t1 0"\nrate = 1.0\n'
    scenario = parse_scenario(SMALLEST + fault + fault)
    changed = scenario.replace({"fault[1].rate": 0.5, "fault[0].at": "2us"})
    assert [(f.at, f.rate) for f in changed.faults] == [(2_000_000, 1.0), (1_000_000, 0.5)]
    assert scenario.replace({"seed": 1}) == scenario == parse_scenario(SMALLEST + fault + fault)
    assert parse_scenario(SMALLEST + fault, ["fault[0].rate=0.5"]).faults[0].rate == 0.5
    with pytest.raises(InputError) as error:
        scenario.replace({"fault[2].rate": 0.5})
    assert str(error.value) == (
        "replace fault[2].rate: there is no such fault; there is fault[0] to fault[1]"
    )
    with pytest.raises(InputError, match=r"^replace: fault\[1\]\.rate: 2 is refused; accepted: "):
        scenario.replace({"fault[1].rate": 2})


def test_an_override_names_a_place_as_errors_do() -> None:
    """What "x.toml: transport[1].qps: 0 is refused" names, --set reaches by the same words."""
    text = SMALLEST + '[[transport]]\n[[transport]]\nkind = "roce"\n'
    scenario = parse_scenario(text, ["transport[1].qps=2", "transport[0].pmtu=2048"])
    assert [t.pmtu for t in scenario.transports] == [2048, 4096]
    assert scenario.transports[1].qps == 2  # type: ignore[union-attr]  # RoCEv2's
    assert parse_scenario(SMALLEST, ["transport[0].pmtu=2048"]).transports[0].pmtu == 2048
    jobs = '[workload]\nkind = "jobs"\n' + "".join(
        f'[[workload.job]]\nname = "{name}"\nkind = "stream"\nnics = "{nics}"\nsize = "1kB"\n'
        for name, nics in (("a", "0-1"), ("b", "2-3"))
    )
    job = parse_scenario(jobs, ["workload.job[1].size=9kB"]).workload
    assert isinstance(job, Jobs)
    sizes = [work.size for _, work in job.job]  # type: ignore[attr-defined]  # a stream's
    assert sizes == [1000, 9000]
    for override, words in {
        "transport[1].qps=0": "--set: transport[1].qps: 0 is refused; accepted: ",
        "transport[2].qps=1": "--set transport[2].qps: there is no such transport; there is"
        " transport[0] to transport[1]",
        "transport[1]=1": "--set transport[1]=1: accepted: KEY=VALUE",
        "workload.job[0].size=1": "--set workload.job[0].size: there is no such job; there is no",
    }.items():
        with pytest.raises(InputError) as error:
            parse_scenario(text, [override])
        assert str(error.value).startswith(words)


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path) -> None:
    """Editors and shells of Windows begin UTF-8 with it."""
    marked = b"\xef\xbb\xbf"
    (tmp_path / "x.toml").write_bytes(marked + SMALLEST.encode())
    assert load_scenario(tmp_path / "x.toml") == parse_scenario("\ufeff" + SMALLEST, name="x")
    (tmp_path / "a.cm").write_bytes(marked + CM.encode())
    (tmp_path / "a.topo").write_bytes(marked + TOPO.encode())
    peer_scenario(str(tmp_path / "a.topo"), str(tmp_path / "a.cm")).build()


@pytest.mark.parametrize("text", [None, 3, b"seed = 1"])
def test_what_is_no_text_is_refused_in_words(text: Any) -> None:
    with pytest.raises(InputError, match="is not text; load_scenario reads a file"):
        parse_scenario(text)


@pytest.mark.parametrize("given", [None, 3, ["a"]])
def test_what_is_neither_a_file_nor_tables_is_refused_in_words(given: Any) -> None:
    with pytest.raises(InputError, match="is not the name of a file; make_scenario takes dicts"):
        load_scenario(given)
    with pytest.raises(InputError, match="is not a dict; load_scenario reads a file"):
        make_scenario(given)


@pytest.mark.parametrize(
    ("tables", "overrides", "message"),
    [
        ({}, {}, "scenario: workload.kind: is missing; accepted: permutation, incast, "),
        ({3: 4}, {}, "3 is not a key"),
        ({"workload": {"kind": "stream", "sice": 4}}, {}, "scenario: workload.sice: unknown key; "),
        ({"workload": {"kind": "stream"}}, {"seed": -1}, "overrides: seed: -1 is refused; "),
        ({"workload": {"kind": "stream"}}, {"fabric": {}}, "overrides fabric={}: accepted: KEY=V"),
    ],
)
def test_dicts_that_are_no_scenario_are_refused(
    tables: dict[Any, Any], overrides: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as error:
        make_scenario(tables, overrides)
    assert str(error.value).startswith(message)


def test_replace_finds_its_files_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.cm").write_text(CM)
    (tmp_path / "x.toml").write_text('[workload]\nkind = "htsim"\ncm = "a.cm"\n')
    monkeypatch.chdir(tmp_path)
    scenario = load_scenario("x.toml")
    monkeypatch.chdir("/")
    assert scenario.replace({"seed": 1}) == scenario


def test_a_scenario_knows_the_files_it_names(tmp_path: Path) -> None:
    (tmp_path / "a.topo").write_text(TOPO)
    (tmp_path / "a.cm").write_text(CM)
    scenario = peer_scenario(str(tmp_path / "a.topo"), str(tmp_path / "a.cm"))
    assert scenario.files() == [tmp_path / "a.topo", tmp_path / "a.cm"]
    assert parse_scenario(SMALLEST).files() == []


def test_a_transport_is_called_by_its_paths_unless_it_says_otherwise() -> None:
    assert parse_scenario(SMALLEST, ["transport.paths=single"]).transports[0].name == "single"
    named = SMALLEST + '[transport]\nname = "mine"\n'
    assert parse_scenario(named, ["transport.paths=single"]).transports[0].name == "mine"


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_an_empty_file_is_refused_with_what_it_needs_at_least(text: str) -> None:
    assert refusal(text) == (
        'x.toml: is empty; at least [workload] and its kind, such as "permutation"'
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fabric {", "x.toml: is not TOML: "),
        (
            "[fabrik]\nnics = 2",
            "x.toml: fabrik: unknown table; did you mean 'fabric'? accepted here: name,",
        ),
        (
            "[fabric]\nport_rat = 1",
            "x.toml: fabric.port_rat: unknown key; did you mean 'port_rate'? ",
        ),
        ('[fabric]\nkind = "fat-tree"\nplanes = 4', "x.toml: fabric.planes: unknown key; "),
        ("[fabric]\nnics = 0", "x.toml: fabric.nics: 0 is refused; accepted: a whole number >= 2"),
        ('[fabric]\nnics = "8"', "x.toml: fabric.nics: '8' is refused; accepted: a whole number"),
        (
            "[fabric]\nplanes = 33",
            "x.toml: fabric.planes: 33 is refused; accepted: a whole number <= 16",
        ),
        (
            "[fabric]\nport_rate = 100",
            "x.toml: fabric.port_rate: 100 has no unit; a rate with its unit",
        ),
        ('[fabric]\nport_rate = "0bps"', "x.toml: fabric.port_rate: 0 is too few; "),
        ('[fabric]\nlink_delay = "-1us"', "x.toml: fabric.link_delay: '-1us' is negative; "),
        (
            "[fabric]\necn_low = 1.5",
            "x.toml: fabric.ecn_low: 1.5 is refused; accepted: a number <= 1.0",
        ),
        (
            "[fabric]\necn_low = 0.9",
            "x.toml: fabric.ecn_low: 0.9 is above ecn_high = 0.8; at most that",
        ),
        ('[fabric]\njitter = "10001us"', "x.toml: fabric.jitter: 10.001ms is above 10ms; at most"),
        (
            '[fabric]\njitter = "1us"\nswitching = "cut-through"',
            "x.toml: fabric.jitter: 1us does not go with switching = 'cut-through'; remove one",
        ),
        (
            '[fabric]\nkind = "torus"',
            "x.toml: fabric.kind: 'torus' is refused; accepted: multiplane,",
        ),
        ("fabric = 3", "x.toml: fabric: 3 is not a table; write [fabric] and its keys below it"),
        ("seed = -1", "x.toml: seed: -1 is refused; accepted: a whole number >= 0"),
        ("seed = true", "x.toml: seed: true is refused; accepted: a whole number"),
        ('name = ""', "x.toml: name: '' is refused; accepted: text of length >= 1"),
        (
            "transport = []",
            "x.toml: transport: is an empty list; leave it out, or write [[transport]]",
        ),
        (
            '[transport]\npaths = "x"',
            "x.toml: transport.paths: 'x' is refused; accepted: mrc, oblivious, ",
        ),
        ("[transport]\nmpr = 100", "x.toml: transport.mpr: 100 is refused; accepted: "),
        (
            '[[transport]]\n[[transport]]\npaths = "mrc"',
            "x.toml: transport[1].name: 'mrc' is already the name of another transport; give each",
        ),
        ("[[transport]]\n[[transport]]\nk = 1", "x.toml: transport[1].k: unknown key; "),
        (
            '[transport]\nrules = "peer"',
            "x.toml: transport.rules: 'peer' is for a fabric of one plane",
        ),
        ("[fault]\nat = 1", "x.toml: fault: is one table; it is a list, write [[fault]]"),
        ("[[fault]]\nat = 1", "x.toml: fault[0].at: 1 has no unit; a time with its unit"),
        ('[[fault]]\nat = "1us"', "x.toml: fault[0].kind: is missing and has no default"),
        ('[stop]\ntime = "soon"', "x.toml: stop.time: 'soon' is not a time; a time with its unit"),
        ("[report]\nqps = 1", "x.toml: report.qps: unknown key; did you mean 'qp'? "),
        ("[report]\nqp = -1", "x.toml: report.qp: -1 is refused; accepted: a whole number >= 0"),
        (
            "[report]\nqp = 64",
            "x.toml: report.qp: 64: there are 64 queue pairs; accepted: 0 to 63",
        ),
        (
            "[report]\nsamples = 19",
            "x.toml: report.samples: 19 is refused; accepted: a whole number >= 20",
        ),
        (
            "[report]\nsamples = 1001",
            "x.toml: report.samples: 1001 is refused; accepted: a whole number <= 1000",
        ),
    ],
)
def test_a_bad_file_is_refused_with_place_value_and_remedy(text: str, message: str) -> None:
    assert refusal(f"{text}\n{SMALLEST}").startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[fabric]\nnics = 8",
            "x.toml: workload.kind: is missing; accepted: permutation, incast, ",
        ),
        ('[workload]\nkind = "stream"\nsize = -5', "x.toml: workload.size: -5 is negative; "),
        (
            '[workload]\nkind = "stream"\nsize = "-5kB"',
            "x.toml: workload.size: '-5kB' is negative; ",
        ),
        ('[workload]\nkind = "stream"\nsize = "0B"', "x.toml: workload.size: 0 B; at least 1 byte"),
        ('[workload]\nkind = "stream"\ndst = 99', "x.toml: workload.dst: nic 99 does not exist; "),
        (
            '[workload]\nkind = "ring-all-reduce"\nranks = 65',
            "x.toml: workload.ranks: 65 ranks on 64",
        ),
        (
            '[workload]\nkind = "all-to-all"\ngroup = 24',
            "x.toml: workload.group: 64 ranks cannot be divided into groups of 24",
        ),
        (
            '[workload]\nkind = "broadcast"\njitter = 0.1',
            "x.toml: workload.jitter: 0.1 of no time; set compute too, or remove it",
        ),
        (
            '[workload]\nkind = "send-recv"\ncompute = "1us"',
            "x.toml: workload.compute: is the time between steps; one step has none, remove it",
        ),
        ('[workload]\nkind = "all-to-all"\nchunks = 2', "x.toml: workload.chunks: unknown key; "),
        (
            '[workload]\nkind = "broadcast"\nshape = "star"',
            "x.toml: workload.shape: 'star' is refused; accepted: chain, tree",
        ),
        (
            '[workload]\nkind = "all-gather"\nflows = "all"',
            "x.toml: workload.flows: 'all' is refused; accepted: message, series, auto",
        ),
        ('[workload]\nkind = "htsim"', "x.toml: workload.cm: is missing and has no default"),
        (
            '[workload]\nkind = "htsim"\ncm = "no.cm"',
            "x.toml: workload.cm: 'no.cm': there is no such",
        ),
    ],
)
def test_a_bad_workload_is_refused(text: str, message: str) -> None:
    assert refusal(text).startswith(message)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            'kind = "link-down"\nwhere = "plane 9 t0 0 - t1 0"',
            "x.toml: fault[0].where: 'plane 9 t0 0 - t1 0'",
        ),
        ('kind = "link-down"\nwhere = "plane 0 t0 0 - t1 99"', "x.toml: fault[0].where: "),
        ('kind = "port-down"\nwhere = "nic 64 plane 0"', "x.toml: fault[0].where: "),
        (
            'kind = "cut"\nwhere = "x"',
            "x.toml: fault[0].kind: 'cut' is refused; accepted: link-down,",
        ),
        ('kind = "link-loss"\nwhere = "x"', "x.toml: fault[0].rate: is missing; link-loss needs"),
        (
            'kind = "link-loss"\nwhere = "x"\nrate = 1.01',
            "x.toml: fault[0].rate: 1.01 is refused; accepted: a number <= 1.0",
        ),
        (
            'kind = "link-down"\nwhere = "x"\nrate = 0.5',
            "x.toml: fault[0].rate: link-down has none, link-loss and link-corrupt may; remove it",
        ),
        (
            'kind = "link-slow"\nwhere = "x"',
            "x.toml: fault[0].factor: is missing; link-slow needs what is left of the rate",
        ),
        ('kind = "mtu"\nwhere = "x"', "x.toml: fault[0].mtu: is missing; mtu needs the longest"),
        (
            'kind = "mtu"\nwhere = "x"\nmtu = "1500"',
            "x.toml: fault[0].mtu: '1500' has no unit; a size with its unit is accepted",
        ),
        (
            'kind = "link-slow"\nwhere = "x"\nfactor = 2',
            "x.toml: fault[0].factor: 2.0; 0.001 to 1 is accepted",
        ),
        (
            'kind = "link-down"\nwhere = "x"\nperiod = "1ms"',
            "x.toml: fault[0].duty: is missing; period needs it",
        ),
        (
            'kind = "link-down"\nwhere = "x"\nperiod = "1ms"\nduty = "half"',
            "x.toml: fault[0].duty: 'half' is refused; accepted: a number",
        ),
        (
            'kind = "link-down"\nwhere = "nic 0 plane 0"\nmtbf = "1ms"\nmttr = "1us"',
            "x.toml: fault[0].until: is missing; what repeats needs an end, here or in stop.time",
        ),
        (
            'kind = "link-down"\nwhere = "x"\nmtbf = "1ms"\nmttr = "1us"\nuntil = "1us"',
            "x.toml: fault[0].until: 1us; a time after at is accepted",
        ),
        (
            'kind = "link-down"\nwhere = "x"\nseed = -1\nshare = 0.5',
            "x.toml: fault[0].seed: -1 is refused; accepted: a whole number >= 0",
        ),
        (
            'kind = "link-down"\nwhere = 7',
            "x.toml: fault[0].where: 7 is refused; accepted: text or a list",
        ),
        (
            'kind = "link-down"\nwhere = ["nic 0 plane 0", 7]',
            "x.toml: fault[0].where: ['nic 0 plane 0', 7] is refused; accepted: text",
        ),
        ('kind = "link-down"\nwhere = []', "x.toml: fault[0].where: [] is refused; accepted: "),
        (
            'kind = "link-down"\nwhere = ["nic 0 plane 0", "nic 0 plane 9"]',
            "x.toml: fault[0].where: 'nic 0 plane 9': there is no plane 9; 0 to 3 exist",
        ),
        (
            'kind = "deny"\nwhere = "plane 0"\nnics = "0-64"',
            "x.toml: fault[0].nics: there is no nic 64; 0 to 63 exist",
        ),
        (
            'kind = "deny"\nwhere = "plane 0"\nnics = 3',
            "x.toml: fault[0].nics: 3 is refused; accepted: text",
        ),
        (
            'kind = "link-down"\nwhere = "x"\nmean = "3us"',
            "x.toml: fault[0].mean: unknown key; accepted here: at, kind, where, for, rate, ",
        ),
        (
            'kind = "link-down"\nwhere = "x"\nfor = "auto"',
            "x.toml: fault[0].for: 'auto' is not a time",
        ),
    ],
)
def test_a_fault_that_cannot_be_is_refused(fault: str, message: str) -> None:
    assert refusal(f'{SMALLEST}[[fault]]\nat = "1us"\n{fault}\n').startswith(message)


def test_what_is_drawn_follows_the_seed_of_the_scenario_and_ends_with_it() -> None:
    text = f"""{SMALLEST}
        [[fault]]
        at = "0s"
        kind = "link-down"
        where = "plane * t0 * - t1 *"
        mtbf = "1ms"
        mttr = "100us"
    """

    def events(*overrides: str) -> list[Any]:
        _, _, schedule = parse_scenario(text, overrides).build()
        found: list[Any] = schedule.events.tolist()
        return found

    first = events("stop.time=2ms")
    assert first == events("stop.time=2ms") != events("stop.time=2ms", "seed=2")
    assert max(event[0] for event in first) == 2_000_000_000
    assert len(events("stop.time=4ms")) > 1.5 * len(first)


def test_the_same_seed_draws_the_same_share_of_the_same_places() -> None:
    """What loses packets can be denied without being named twice."""
    fault = 'at = "0s"\nwhere = "plane * t0 * - t1 *"\nshare = 0.1\nseed = 4\n'
    loss, deny = (f'[[fault]]\nkind = "{kind}"\n{fault}' for kind in ("link-loss", "deny"))
    text = f"{SMALLEST}{loss}rate = 0.1\n{deny}"
    _, _, schedule = parse_scenario(text).build()
    by_action = [
        schedule.events["target"][schedule.events["action"] == action].tolist()
        for action in (PORT_LOSS, PORT_DENY)
    ]
    assert by_action[0] == by_action[1]
    assert len(by_action[0]) == 2 * 26  # of 4 x 4 x 16 links


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("fabric.nics", "--set fabric.nics: accepted: KEY=VALUE, such as fabric.nics=128"),
        ("fabric=3", "--set fabric=3: accepted: KEY=VALUE, such as fabric.nics=128"),
        ("seed.x=3", "--set seed.x=3: accepted: KEY=VALUE, such as fabric.nics=128"),
        ("fault.at=1us", "--set: fault: unknown table; did you mean 'fault[0]'? accepted"),
        ("fabric.nics=0", "--set: fabric.nics: 0 is refused; accepted: a whole number >= 2"),
        ("fabric.nic=8", "--set: fabric.nic: unknown key; did you mean 'nics'? "),
        ("fabrik.nics=8", "--set: fabrik: unknown table; did you mean 'fabric'? "),
        ("transport.pmtu=big", "--set: transport.pmtu: 'big' is not a size; a size with its unit"),
        ("seed=x", "--set: seed: 'x' is refused; accepted: a whole number"),
    ],
)
def test_a_bad_override_is_refused_as_one(override: str, message: str) -> None:
    assert refusal(SMALLEST, override).startswith(message)


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no\.toml: cannot be read \(No such file or directory\)"):
        load_scenario(tmp_path / "no.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"b\.toml: is not UTF-8 text; name a scenario file"):
        load_scenario(tmp_path / "b.toml")


def test_a_packet_size_is_one_that_mrc_knows_or_any_in_peer_runs() -> None:
    for text, size in (("8192", 8192), ("'8KiB'", 8192), ("1024", 1024)):
        (section,) = parse_scenario(SMALLEST + f"[transport]\npmtu = {text}\n").transports
        assert section.build().pmtu == size
    (odd,) = parse_scenario(SMALLEST + "[transport]\npmtu = 1500\n").transports
    with pytest.raises(InputError, match=r"pmtu: 1500; accepted: 1024, 2048, 4096 or 8192"):
        odd.build()
    (peer,) = parse_scenario(SMALLEST + "[transport]\nrules = 'peer'\npmtu = 1500\n").transports
    assert peer.build().pmtu == 1500
    (small,) = parse_scenario(SMALLEST + "[transport]\nrules = 'peer'\npmtu = 63\n").transports
    with pytest.raises(InputError, match=r"pmtu: 63; accepted: 64 to 16384"):
        small.build()


@pytest.mark.parametrize(
    ("text", "queue_bytes", "queue_ps"),
    [('"64KiB"', 65_536, None), ('"20us"', None, 20_000_000), ('"auto"', None, None)],
)
def test_a_queue_is_bytes_or_a_time(
    text: str, queue_bytes: int | None, queue_ps: int | None
) -> None:
    said = f'[fabric]\nqueue_last_hop = {text}\n[workload]\nkind = "permutation"\n'
    scenario = parse_scenario(said)
    queues = scenario.fabric.queues()
    assert (queues.queue_last_hop_bytes, queues.queue_last_hop_ps) == (queue_bytes, queue_ps)
    assert (queues.queue_bytes, queues.queue_ps) == (None, None)
    assert parse_scenario(scenario.to_toml()) == scenario
    assert f"queue_last_hop = {text}" in scenario.to_toml()


@pytest.mark.parametrize("text", ['"20"', '"20Gbps"', '"1.5"', "20", '""'])
def test_a_queue_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"fabric\.queue: .*a size or a time is accepted"):
        parse_scenario(f'[fabric]\nqueue = {text}\n[workload]\nkind = "permutation"\n')
