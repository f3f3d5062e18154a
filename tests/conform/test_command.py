"""The command, its page and its XML."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from openmrc.cli.command import main
from openmrc.conform import plain, report
from openmrc.conform.outcome import Outcome
from openmrc.conform.script import Rule, read

PASSED = Outcome("good", "g", "responder", "It is so.", "MRC 2.6", "pass")
FAILED = Outcome(
    *("bad", "g", "responder", "It is <so>.", "row 5", "fail", "missing: expect sack"),
    line=7,
    sent="data psn=1",
    came="sack psn=0",
)
SKIPPED = Outcome("other", "h", "requester", "So.", "UET 3", "not applicable", "no planes")
ALL = [PASSED, FAILED, SKIPPED]
EXCHANGE = "send data psn=+0 a=1\nexpect sack psn>=1"


def test_a_group_is_a_line_and_a_failure_shows_both_packets() -> None:
    assert report.lines(ALL) == [
        "g                        1 passed, 1 failed",
        "h                        0 passed, 1 not applicable",
        "",
        "FAIL  bad  (row 5)",
        "      It is <so>.",
        "      g.rules line 7: missing: expect sack",
        "      sent  data psn=1",
        "      came  sack psn=0",
        "",
        "not applicable, 1: no planes",
        "",
        "3 rules: 1 passed, 1 failed, 1 not applicable",
    ]


def test_junit_has_a_suite_a_group_and_a_case_a_rule() -> None:
    root = ElementTree.fromstring(report.junit(ALL, "x"))
    first, second = root.findall("testsuite")
    assert first.attrib == {"name": "g", "tests": "2", "failures": "1", "skipped": "0"}
    failure = first.findall("testcase")[1].find("failure")
    assert failure is not None
    assert failure.attrib["message"] == "It is <so>. (row 5)"
    assert "came  sack psn=0" in str(failure.text)
    assert second[0].find("skipped") is not None


def test_the_page_has_what_failed_first_and_escapes_it() -> None:
    page = report.page(ALL, "a <b>")
    assert page.index("bad") < page.index("good")
    assert "It is &lt;so&gt;." in page
    assert "a &lt;b&gt;" in page
    assert "<details>" not in page


def test_the_page_shows_the_exchange_of_each_rule() -> None:
    [rule] = read(
        "g", f"role responder\nrule good\nSays.\nsource: row 5\nwith: mpr=512\n{EXCHANGE}"
    )
    page = report.page(ALL, "x", [rule])
    assert page.count("<details>") == 1
    assert f"<pre>with: mpr=512\n{EXCHANGE.replace('>', '&gt;')}</pre>" in page


def test_the_command_runs_a_rule_and_writes_both_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["conformance", "--rule", "sack-when-asked", "--rule", "msn-counts-messages"]
    files = [tmp_path / "kit.html", tmp_path / "kit.xml"]
    assert main([*words, "--page", str(files[0]), "--junit", str(files[1])]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 rules: 2 passed"
    assert all("sack-when-asked" in file.read_text() for file in files)


def test_a_failure_is_exit_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def outcomes(rules: list[Rule]) -> list[Outcome]:
        assert {rule.role for rule in rules} == {"responder"}
        return ALL

    monkeypatch.setattr(plain, "outcomes", outcomes)
    assert main(["conformance", "--role", "responder", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [each["outcome"] for each in told["rules"]] == ["pass", "fail", "not applicable"]


def test_planes_that_are_not_there_are_no_matter_of_a_rule(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENMRC_SECRET", bytes(range(32)).hex())
    where = ["--address", "127.0.0.1:1", "--interface", "nosuch0"]
    assert main(["conformance", *where]) == 2
    assert "nosuch0" in capsys.readouterr().err


def test_attributes_that_nobody_understands_are_no_matter_of_a_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["conformance", "--rule", "sack-when-asked", "--interface", "127.0.99.1,127.0.99.2"]
    file = tmp_path / "qp.json"
    assert main([*words, "--attributes", str(tmp_path / "no/qp.json")]) == 2
    assert "qp.json.kit: No such file or directory; name a file" in capsys.readouterr().err
    for text, why in (
        ("{", "Expecting property name"),
        ("{}", "the target's attributes are not understood: 'qp'"),
    ):
        file.write_text(text)
        assert main([*words, "--attributes", str(file)]) == 2
        assert why in capsys.readouterr().err


def test_rules_are_listed_with_their_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "--list", "--role", "requester"]) == 0
    assert "requester   a-write-is-cut-into-packets  (MRC 1.4, 2.3)" in capsys.readouterr().out
    assert main(["conformance", "--rule", "no-such-rule"]) == 2
    assert "--rule no-such-rule: is no rule of this role" in capsys.readouterr().err
