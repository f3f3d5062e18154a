"""Outcomes for people and for machines: lines, a page, JUnit XML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from xml.etree import ElementTree as Xml

from openmrc.conform.outcome import Outcome, count
from openmrc.conform.run import FAIL, NOT_APPLICABLE, PASS


def lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a line a group, and for each rule that fails what shows it."""
    told = []
    for group in dict.fromkeys(each.group for each in outcomes):
        own = [each for each in outcomes if each.group == group]
        told.append(f"{group:24} {summary(own)}")
    for each in outcomes:
        if each.outcome == FAIL:
            told += ["", f"FAIL  {each.rule}  ({each.source})", f"      {each.says}"]
            told += [f"      {text}" for text in each.shown]
    return [*told, "", f"{len(outcomes)} rules: {summary(outcomes)}"]


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return "20 passed, 1 failed, 2 not applicable"."""
    words = {PASS: "passed", FAIL: "failed", NOT_APPLICABLE: "not applicable"}
    counts = {word: count(outcomes, outcome) for outcome, word in words.items()}
    return ", ".join(f"{n} {word}" for word, n in counts.items() if n or word == "passed")


def junit(outcomes: Sequence[Outcome], target: str) -> str:
    """Return JUnit's XML: a suite a group, a case a rule."""
    root = Xml.Element("testsuites", name=f"MRC conformance of {target}")
    for group in dict.fromkeys(each.group for each in outcomes):
        own = [each for each in outcomes if each.group == group]
        suite = Xml.SubElement(
            root,
            "testsuite",
            name=group,
            tests=str(len(own)),
            failures=str(count(own, FAIL)),
            skipped=str(count(own, NOT_APPLICABLE)),
        )
        for each in own:
            case = Xml.SubElement(suite, "testcase", classname=group, name=each.rule)
            if each.outcome == FAIL:
                failure = Xml.SubElement(case, "failure", message=f"{each.says} ({each.source})")
                failure.text = "\n".join(each.shown)
            elif each.outcome == NOT_APPLICABLE:
                Xml.SubElement(case, "skipped", message=each.why)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Xml.tostring(root, "unicode") + "\n"


_PAGE = """\
<!doctype html>
<html lang="en"><meta charset="utf-8"><title>MRC conformance of {target}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem }}
table {{ border-collapse: collapse; width: 100% }}
td, th {{ border-bottom: 1px solid #ccc; padding: .4rem .6rem }}
td, th {{ text-align: left; vertical-align: top }}
.fail {{ color: #b00020; font-weight: 600 }} pre {{ white-space: pre-wrap; margin: .3rem 0 }}
</style>
<h1>MRC conformance of {target}</h1>
<p>{summary}. Each rule names its source: MRC, IBTA and UET are public texts, a row is a choice of
openmrc where those are silent or disagree.</p>
<table><tr><th>Rule<th>What it says<th>Source<th>Outcome</tr>
{rows}
</table></html>
"""


def page(outcomes: Sequence[Outcome], target: str) -> str:
    """Return a page: rules that fail first, with the packets that show it."""
    ordered = sorted(outcomes, key=lambda each: each.outcome != FAIL)
    rows = "\n".join(_row(each) for each in ordered)
    return _PAGE.format(target=escape(target), summary=escape(summary(outcomes)), rows=rows)


def _row(each: Outcome) -> str:
    says, kind = escape(each.says), "fail" if each.outcome == FAIL else "other"
    if each.outcome == FAIL:
        says += f"<pre>{escape(chr(10).join(each.shown))}</pre>"
    elif each.why:
        says += f"<pre>{escape(each.why)}</pre>"
    return (
        f"<tr><td>{escape(each.rule)}<td>{says}<td>{escape(each.source)}"
        f'<td class="{kind}">{escape(each.outcome)}</tr>'
    )
