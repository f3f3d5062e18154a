"""The tables of transports: which keys each kind has, what they mean, and what is refused."""

from __future__ import annotations

import pytest

from openmrc import parse_scenario
from openmrc.errors import InputError
from openmrc.run.simulation import _compile as compile_worlds
from openmrc.run.simulation import simulate, world_of
from openmrc.scenario.scenario import Scenario, peer_scenario
from openmrc.scenario.transports import Convergence, RoceSection, TransportSection
from openmrc.sim.roce.transport import BGP_PS, HOLD_PS, RoceTransport
from tests.scenario.files import CM, TOPO

MS = 10**9
WORK = '[workload]\nkind = "permutation"\n'
ROCE = WORK + '[[transport]]\n[[transport]]\nkind = "roce"\n'


def roce_of(text: str, *overrides: str) -> RoceTransport:
    built = parse_scenario(WORK + '[transport]\nkind = "roce"\n' + text, overrides).transports[0]
    assert isinstance(built, RoceSection)
    return built.build()


def refusal(text: str, *overrides: str) -> str:
    with pytest.raises(InputError) as refused:
        parse_scenario(text, overrides, source="x.toml").build()
    return str(refused.value)


def test_the_defaults_are_those_of_the_simulator() -> None:
    assert roce_of("") == RoceTransport()


def test_every_key_arrives() -> None:
    text = (
        'name = "r"\nqps = 16\npmtu = 2048\nprofile = "aggressive"\nbuffer = "64MB"\n'
        'ack_every = 8\nrto = "4ms"\nrto_first = "1ms"\nretry_cnt = 3\n'
        'local_repair = "5ms"\nconvergence = "1s-3s"\nbase_rtt = "10us"\n'
    )
    assert roce_of(text) == RoceTransport(
        name="r",
        qps=16,
        pmtu=2048,
        profile="aggressive",
        pfc=True,
        buffer_bytes=64_000_000,
        ack_every=8,
        rto_ps=4 * MS,
        rto_first_ps=1 * MS,
        retry_cnt=3,
        local_repair_ps=5 * MS,
        convergence_ps=(1000 * MS, 3000 * MS),
        base_rtt_ps=10_000_000,
    )
    assert not roce_of("pfc = false").pfc
    assert roce_of('cc = "none"').cc == "none"
    assert roce_of('rules = "peer"\npmtu = 4086').rules == "peer"


@pytest.mark.parametrize(
    ("text", "low", "high", "again"),
    [
        ("instant", 0, 0, "instant"),
        ("0s", 0, 0, "instant"),
        ("50ms", 50 * MS, 50 * MS, "50ms"),
        ("1s-3s", 1000 * MS, 3000 * MS, "1s-3s"),
        ("bgp", *BGP_PS, "bgp"),
        ("50ms-1s", *BGP_PS, "bgp"),
        ("bgp-hold", *HOLD_PS, "bgp-hold"),
        ("2s-3s", *HOLD_PS, "bgp-hold"),
    ],
)
def test_convergence(text: str, low: int, high: int, again: str) -> None:
    found = Convergence.parse(text)
    assert (found.low_ps, int(found), found.text()) == (low, high, again)
    assert Convergence.parse(found.text()).text() == again


def test_both_kinds_stand_in_one_file_and_come_back_the_same() -> None:
    scenario = parse_scenario(ROCE + 'convergence = "1s-2s"\nqps = 4\n')
    assert [each.name for each in scenario.transports] == ["mrc", "roce"]
    again = parse_scenario(scenario.to_toml(), name=scenario.name)
    assert again == scenario
    assert 'kind = "roce"' in scenario.to_toml()
    assert again.transports[1].build() == scenario.transports[1].build()


def test_one_transport_is_set_by_its_name() -> None:
    scenario = parse_scenario(ROCE, ["transport.roce.qps=8", "transport.pmtu=2048"])
    mrc, roce = scenario.transports
    assert isinstance(roce, RoceSection)
    assert (roce.qps, roce.pmtu, mrc.pmtu) == (8, 2048, 2048)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("qps = 65", "transport[1].qps: 65 is refused; accepted: "),
        ("qps = 0", "transport[1].qps: 0 is refused; accepted: "),
        ('paths = "mrc"', "transport[1].paths: unknown key; "),
        ('cc = "nscc"', "transport[1].cc: 'nscc' is refused; accepted: dcqcn, rtt, none"),
        ('profile = "x"', "transport[1].profile: 'x' is refused; accepted: default, lenient,"),
        ("retry_cnt = 8", "transport[1].retry_cnt: 8 is refused"),
        ('rto = "0s"', "transport[1].rto: "),
        ('rto_first = "0s"', "transport[1].rto_first: 0ps; at least 1 ps"),
        (
            'rto = "1ms"\nrto_first = "2ms"',
            "transport[1].rto_first: 2ms; at least 1 ps, and at most rto, 1ms",
        ),
        (
            'local_repair = "50ms"\nconvergence = "50ms"',
            "transport[1].local_repair: 50ms does nothing: by then routing has converged",
        ),
        ('local_repair = "1s"', "transport[1].local_repair: 1s does nothing: by then routing"),
        (
            'convergence = "soon"',
            "transport[1].convergence: 'soon' is refused; accepted: ",
        ),
        ('convergence = "3s-1s"', "transport[1].convergence: '3s-1s' ends before it begins"),
        ("convergence = 3", "transport[1].convergence: 3 is refused"),
        ('pfc = false\nbuffer = "1MB"', "transport[1].buffer: 1MB is shared with pfc = true only"),
        ('name = "mrc"', "transport[1].name: 'mrc' is already the name"),
    ],
)
def test_what_is_refused(line: str, words: str) -> None:
    assert refusal(ROCE + line).startswith(f"x.toml: {words}")


def test_an_unknown_kind_and_a_key_of_the_other_kind() -> None:
    assert refusal(WORK + '[transport]\nkind = "tcp"').startswith(
        "x.toml: transport.kind: 'tcp' is refused; accepted: mrc, roce"
    )
    assert refusal(ROCE, "transport.qps=2").startswith("--set: transport[0].qps: unknown key")
    section = parse_scenario(ROCE + "pmtu = 1500").transports[1]
    with pytest.raises(InputError, match="accepted: 1024, 2048, 4096 or 8192"):
        section.build()


def test_a_peer_run_may_be_roce(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("peer")
    (folder / "a.topo").write_text(TOPO)
    (folder / "one.cm").write_text(CM)
    files = (str(folder / "a.topo"), str(folder / "one.cm"))
    scenario: Scenario = peer_scenario(*files, ["transport.kind=roce"])
    (transport,) = scenario.transports
    assert isinstance(transport, RoceSection)
    assert (transport.rules, transport.pmtu, transport.cc) == ("peer", 4086, "none")
    assert isinstance(peer_scenario(*files).transports[0], TransportSection)


def test_only_what_a_scenario_needs_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from openmrc.jit import warmup
    from openmrc.sim.mrc.transport import Transport

    compiled: list[list[str]] = []
    monkeypatch.setattr(warmup, "is_cached", lambda world: False)

    def warm_up(*worlds: warmup.WarmUp, report: object) -> None:
        compiled.append([each.world for each in worlds])

    monkeypatch.setattr(warmup, "warm_up", warm_up)
    compile_worlds(None, [RoceTransport(), RoceTransport()])
    compile_worlds(None, [Transport(), RoceTransport()])
    compile_worlds(None, [RoceTransport(routing="spray")])
    assert compiled == [["sim.roce"], ["sim", "sim.roce"], ["sim.roce", "sim.roce.balance"]]
    monkeypatch.setattr(warmup, "is_cached", lambda world: world == "sim")
    compile_worlds(None, [Transport()])
    assert len(compiled) == 3


def test_a_lab_refuses_what_is_only_simulated() -> None:
    from openmrc.run.lab.plan import refuse

    scenario = parse_scenario(ROCE)
    mrc, roce = scenario.transports
    assert refuse(mrc, scenario.fabric, scenario.lab) is mrc
    with pytest.raises(InputError) as refused:
        refuse(roce, scenario.fabric, scenario.lab)
    assert str(refused.value) == (
        "transport.kind: 'roce' of 'roce' is only simulated; --world lab accepts 'mrc'"
    )


@pytest.mark.parametrize(
    ("key", "refused"),
    [
        ("pmtu = 1000", "pmtu: 1000; accepted: 1024, 2048, 4096 or 8192"),
        ('base_rtt = "0s"', 'base_rtt: 0ps; accepted: 1 ps or more, or "auto"'),
    ],
)
def test_what_a_transport_refuses_names_which_of_several(key: str, refused: str) -> None:
    with pytest.raises(InputError) as second:
        simulate(parse_scenario(ROCE + key, source="two.toml"))
    assert str(second.value) == f"two.toml: transport[1].{refused}"
    with pytest.raises(InputError) as only:
        simulate(parse_scenario(WORK + "[transport]\n" + key, source="one.toml"))
    assert str(only.value) == f"one.toml: transport.{refused}"


MANY = 'kind = "stream"\nsize = "1kB"\n'
BOTH = "[workload]\n" + MANY + '[[transport]]\n[[transport]]\nkind = "roce"\n'


@pytest.mark.parametrize(
    ("key", "refused"),
    [
        ('buffer = "1kB"', "transport[1].buffer: 1000 B: PFC needs"),
        (
            '[fabric]\nlink_delay = "1ms"',
            "transport[1].buffer: 'auto' is 2560000 B for a switch here",
        ),
    ],
)
def test_what_only_a_world_refuses_names_the_file_and_which_of_several(
    key: str, refused: str
) -> None:
    scenario = parse_scenario(BOTH + key, source="two.toml")
    fabric, traffic, schedule = scenario.build()
    world_of(scenario, fabric, traffic, schedule, scenario.transport(0))
    with pytest.raises(InputError) as second:
        world_of(scenario, fabric, traffic, schedule, scenario.transport(1))
    assert str(second.value).startswith(f"two.toml: {refused}")


def test_of_several_transports_the_run_is_named_where_no_key_of_it_is_to_blame() -> None:
    scenario = parse_scenario(ROCE, source="two.toml")
    with pytest.raises(InputError) as refused, scenario.naming(1):
        raise InputError("workload: too many queue pairs")
    assert str(refused.value) == (
        "two.toml: workload: too many queue pairs (in the run of transport[1])"
    )
    with pytest.raises(InputError) as option, scenario.naming(1):
        raise InputError("--pcap: transport.pmtu = 16384: too long")
    assert str(option.value) == "--pcap: transport.pmtu = 16384: too long"


def test_a_peer_among_several_planes_is_named() -> None:
    assert refusal(ROCE + 'rules = "peer"').startswith(
        "x.toml: transport[1].rules: 'peer' is for a fabric of one plane, this one has 4; use"
    )


def test_what_does_not_fit_the_memory_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 46 GiB")

    monkeypatch.setattr("openmrc.run.simulation._world", too_large)
    with pytest.raises(InputError) as refused:
        simulate(parse_scenario(ROCE, source="x.toml"))
    assert str(refused.value).startswith(
        "x.toml: 64 queue pairs among 64 NICs do not fit this machine's memory (Unable to"
    )
