"""A key that would do nothing is refused, and the same key accepted where it does something."""

from __future__ import annotations

import pytest

from openmrc import parse_scenario
from openmrc.errors import InputError
from openmrc.scenario.scenario import Scenario, make_scenario
from openmrc.soak.sim import draw

TWO_T0S = "[fabric]\nnics = 8\nt0_down = 4\n"
ONE_T0 = "[fabric]\nnics = 4\nt0_down = 4\nplanes = 1\n"
ONE_UPLINK = "[fabric]\nnics = 8\nt0_down = 4\nt0_up = 1\nplanes = 1\n"
WORK = '[workload]\nkind = "permutation"\n'
ROCE = '[transport]\nkind = "roce"\n'
SIZES = "".join(f'{key}_size = "1MB"\n' for key in ("tp", "pp", "ep", "dp", "expert"))
TRAINING = '[workload]\nkind = "training"\n'


def mrc(keys: str, fabric: str = TWO_T0S) -> str:
    return fabric + WORK + "[transport]\n" + keys


def roce(keys: str, fabric: str = TWO_T0S) -> str:
    return fabric + WORK + ROCE + keys


def built(text: str) -> Scenario:
    scenario = parse_scenario(text, source="x.toml")
    scenario.build()
    return scenario


PAIRS = {
    "freezing": (
        mrc('freezing = "1ms"'),
        "transport.freezing: 1ms does nothing with paths = 'mrc', only with 'reps'; leave it out",
        mrc('freezing = "1ms"\npaths = "reps"'),
    ),
    "convergence of MRC": (
        mrc('convergence = "1ms"\npaths = "oblivious"'),
        "transport.convergence: 1ms does nothing with paths = 'oblivious', only with 'single'",
        mrc('convergence = "1ms"\npaths = "single"'),
    ),
    "convergence of switches that balance": (
        mrc('convergence = "1ms"\nsrv6 = false'),
        "transport.convergence: 1ms does nothing with paths = 'mrc', only with 'single'",
        mrc('convergence = "1ms"\nsrv6 = false\nrouting = "adaptive"'),
    ),
    "carriers where switches choose": (
        mrc('routing = "adaptive"'),
        "transport.srv6: true does nothing with routing = 'adaptive', where an EV names no path;"
        " say srv6 = false",
        mrc('routing = "adaptive"\nsrv6 = false'),
    ),
    "fields where switches choose": (
        mrc('routing = "spray"\nsrv6 = false\nev_fields = true'),
        "transport.ev_fields: true does nothing with routing = 'spray', where an EV names no path",
        mrc('routing = "spray"\nsrv6 = false'),
    ),
    "one path where switches choose": (
        mrc('routing = "spray"\nsrv6 = false\npaths = "single"'),
        "transport.paths: 'single' does nothing with routing = 'spray', where an EV names no path",
        mrc('routing = "spray"\nsrv6 = false\npaths = "reps"'),
    ),
    "switches that choose, without a choice": (
        mrc('routing = "spray"\nsrv6 = false', ONE_UPLINK),
        "transport.routing: 'spray' does nothing: this fabric has one path between two NICs;"
        " leave it out",
        mrc('routing = "spray"\nsrv6 = false', ONE_UPLINK.replace("_up = 1", "_up = 2")),
    ),
    "always_skip_after": (
        mrc('always_skip_after = 3\npaths = "reps"'),
        "transport.always_skip_after: 3 does nothing with paths = 'reps', only with 'mrc'",
        mrc("always_skip_after = 3"),
    ),
    "skip_turns": (
        mrc('skip_turns = 1\npaths = "oblivious"'),
        "transport.skip_turns: 1 does nothing with paths = 'oblivious', only with 'mrc'",
        mrc("skip_turns = 1"),
    ),
    "ev_fields": (
        mrc("ev_fields = true"),
        "transport.ev_fields: does nothing where packets have carriers; say srv6 = false",
        mrc("ev_fields = true\nsrv6 = false"),
    ),
    "ecn_skip": (
        mrc('ecn_skip = false\npaths = "reps"'),
        "transport.ecn_skip: 'reps' skips no path anyway; leave it out",
        mrc("ecn_skip = false"),
    ),
    "trim_nack": (
        mrc("trim = false\ntrim_nack = false"),
        "transport.trim_nack: false does nothing: no switch trims; leave it out",
        mrc("trim_nack = false"),
    ),
    "trim_nack, of a fabric": (
        mrc("trim_nack = false", TWO_T0S + "trim = false\n"),
        "transport.trim_nack: false does nothing: no switch trims; leave it out",
        mrc("trim = true\ntrim_nack = false", TWO_T0S + "trim = false\n"),
    ),
    "dscp": (
        roce("", TWO_T0S + 'dscp = "trimmed=11"\n'),
        "fabric.dscp: 'trimmed=11' does nothing: it is MRC's alone",
        mrc("", TWO_T0S + 'dscp = "trimmed=11"\n'),
    ),
    "profile": (
        roce('profile = "aggressive"\ncc = "none"'),
        "transport.profile: 'aggressive' does nothing with cc = 'none', only with 'dcqcn'",
        roce('profile = "aggressive"'),
    ),
    "buffer": (
        roce('buffer = "64MiB"\npfc = false'),
        "transport.buffer: 64MiB is shared with pfc = true only",
        roce('buffer = "64MiB"'),
    ),
    "buffer of a peer": (
        roce('buffer = "64MiB"\nrules = "peer"', ONE_T0),
        "transport.buffer: 64MiB does nothing with rules = 'peer'",
        roce('rules = "peer"', ONE_T0),
    ),
    "convergence below one T0": (
        roce('convergence = "1ms"', ONE_T0),
        "transport.convergence: 1ms does nothing: this fabric has one path between two NICs",
        roce('convergence = "1ms"'),
    ),
    "convergence of one uplink": (
        roce('convergence = "instant"', ONE_UPLINK),
        "transport.convergence: instant does nothing: this fabric has one path",
        roce('convergence = "instant"', ONE_UPLINK.replace("planes = 1", "planes = 2")),
    ),
    "local repair of one uplink": (
        roce('local_repair = "2ms"', ONE_UPLINK.replace("planes = 1", "planes = 2")),
        "transport.local_repair: 2ms does nothing: a plane of this fabric has one path",
        roce('local_repair = "2ms"'),
    ),
    "steps of a hash": (
        roce("load_steps = [0.5]"),
        "transport.load_steps: [0.5] does nothing with routing = 'hashed'; leave it out",
        roce('routing = "adaptive"\nload_steps = [0.5]'),
    ),
    "steps of oblivious switches": (
        roce('routing = "spray"\nload_steps = [0.5]'),
        "transport.load_steps: [0.5] does nothing with routing = 'spray'; leave it out",
        roce('routing = "spray"\nties = "rotation"'),
    ),
    "a switch's own dead link, where it balances": (
        roce('routing = "spray"\nlocal_repair = "2ms"'),
        "transport.local_repair: 2ms does nothing with routing = 'spray'; leave it out",
        roce('routing = "spray"\nconvergence = "2ms"'),
    ),
    "ties of one uplink": (
        roce('routing = "adaptive"\nties = "random"', ONE_UPLINK),
        "transport.ties: 'random' does nothing: this fabric has one path between two NICs",
        roce('routing = "adaptive"\nties = "random"'),
    ),
    "planes that there are not": (
        roce('routing = "adaptive"\nfailover = "software"', ONE_UPLINK),
        "transport.failover: software does nothing: this fabric has one plane; leave it out",
        roce(
            'routing = "adaptive"\nfailover = "software"',
            ONE_UPLINK.replace("planes = 1", "planes = 2"),
        ),
    ),
    "a report that nobody sends": (
        roce('routing = "adaptive"\nrecovery = "timer"\nreordering = "5us"'),
        "transport.reordering: 5us does nothing with recovery = 'timer'",
        roce('routing = "adaptive"\nreordering = "5us"'),
    ),
    "convergence of one path": (
        mrc('convergence = "1ms"\npaths = "single"', ONE_UPLINK),
        "transport.convergence: 1ms does nothing: this fabric has one path",
        mrc('convergence = "1ms"\npaths = "single"', ONE_UPLINK.replace("_up = 1", "_up = 2")),
    ),
    "marks": (
        roce("", TWO_T0S + "ecn_low = 0.1\n"),
        "fabric.ecn_low: 0.1 does nothing: it is MRC's alone, and every transport here is RoCEv2",
        mrc("", TWO_T0S + "ecn_low = 0.1\n"),
    ),
    "trimming": (
        roce("", TWO_T0S + "trim = false\n"),
        "fabric.trim: false does nothing: it is MRC's alone",
        mrc("", TWO_T0S + "trim = false\n"),
    ),
    "queues": (
        roce("", TWO_T0S + 'queue = "64kB"\n'),
        "fabric.queue: 64kB does nothing: with pfc = true queues have no end; leave it out",
        roce("pfc = false", TWO_T0S + 'queue = "64kB"\n'),
    ),
    "a checkpoint's time": (
        TWO_T0S + TRAINING + 'checkpoint_time = "1s"\n',
        "workload.checkpoint_time: 1s does nothing without faults_per_day; set that too",
        TWO_T0S + TRAINING + 'checkpoint_time = "1s"\nfaults_per_day = 1.0\n',
    ),
    "a model that nothing comes from": (
        TWO_T0S + TRAINING + SIZES + "hidden = 64\n",
        "workload.hidden: 64 does nothing where all of tp_size, pp_size, ep_size, dp_size,"
        " expert_size are stated; leave it out",
        TWO_T0S + TRAINING + SIZES.replace('tp_size = "1MB"\n', "") + "hidden = 64\n",
    ),
}


@pytest.mark.parametrize(("idle", "words", "works"), PAIRS.values(), ids=PAIRS)
def test_what_does_nothing_is_refused_with_the_remedy(idle: str, words: str, works: str) -> None:
    with pytest.raises(InputError) as refused:
        built(idle).transport(0)
    assert str(refused.value).startswith(f"x.toml: {words}")
    built(works).transport(0)


@pytest.mark.parametrize("works", [works for _, _, works in PAIRS.values()], ids=PAIRS)
def test_what_works_is_written_out_and_read_again(works: str) -> None:
    scenario = built(works)
    assert parse_scenario(scenario.to_toml(), name=scenario.name) == scenario


def test_auto_is_accepted_wherever_the_key_is() -> None:
    built(mrc('freezing = "auto"\nconvergence = "auto"'))
    built(roce('cc = "none"\nprofile = "auto"\nconvergence = "auto"', ONE_T0))


def test_a_fabric_with_a_transport_of_each_kind_may_say_all() -> None:
    built(
        TWO_T0S + 'ecn_low = 0.1\nqueue = "64kB"\n' + WORK + "[[transport]]\n[[transport]]\n"
        'kind = "roce"\n'
    )


def test_a_soak_draws_nothing_that_does_nothing() -> None:
    for seed in range(40):
        make_scenario(draw(seed)).build()
