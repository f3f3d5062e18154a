"""Outcomes for people and for machines: lines, a page, JUnit XML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from xml.etree import ElementTree as Xml

from openmrc.conform.outcome import Outcome, count
from openmrc.conform.run import FAIL, NOT_APPLICABLE, PASS
from openmrc.conform.script import Rule
from openmrc.say import counted


def lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Return one line per group, the packets of rules that fail, and why others do not apply."""
    told = []
    for group in dict.fromkeys(each.group for each in outcomes):
        own = [each for each in outcomes if each.group == group]
        told.append(f"{group:24} {summary(own)}")
    for each in outcomes:
        if each.outcome == FAIL:
            told += ["", f"FAIL  {each.rule}  ({each.source})", f"      {each.says}"]
            told += [f"      {text}" for text in each.shown]
    whys = Counter(each.why for each in outcomes if each.outcome == NOT_APPLICABLE)
    told += ["", *(f"not applicable, {n}: {why}" for why, n in whys.items())] if whys else []
    return [*told, "", f"{counted(len(outcomes), 'rule')}: {summary(outcomes)}"]


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return "20 passed, 1 failed, 2 not applicable"."""
    words = {PASS: "passed", FAIL: "failed", NOT_APPLICABLE: "not applicable"}
    counts = {word: count(outcomes, outcome) for outcome, word in words.items()}
    return ", ".join(f"{n} {word}" for word, n in counts.items() if n or word == "passed")


def junit(outcomes: Sequence[Outcome], target: str) -> str:
    """Return JUnit's XML: a suite per group, a case per rule."""
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
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>MRC conformance of {target}</title>
<style>
:root {{ color-scheme: light dark; --rule: light-dark(#d9dde1, #363d46);
  --quiet: light-dark(#5b636c, #a0a8b1); --fail: light-dark(#b00020, #ff5c6e) }}
body {{ font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; margin: 2rem auto; max-width: 76rem;
  padding: 0 1rem; overflow-wrap: anywhere }}
h1 {{ font-size: 1.5rem; line-height: 1.2 }} h2 {{ font-size: 1.1rem; margin: 1.8rem 0 .3rem }}
h2 span, summary, .other {{ color: var(--quiet) }} h2 span {{ font-weight: normal }}
table {{ border-collapse: collapse; width: 100%; table-layout: fixed }}
td {{ border-top: 1px solid var(--rule); padding: .4rem .8rem .4rem 0; vertical-align: top }}
td:first-child {{ font-family: monospace; width: 24% }}
td:nth-child(3) {{ width: 13% }} td:last-child {{ width: 9% }}
.fail {{ color: var(--fail); font-weight: 600 }}
pre {{ white-space: pre-wrap; margin: .3rem 0; font-size: .85rem }} summary {{ cursor: pointer }}
@media (max-width: 46rem) {{
  td, td:first-child, td:nth-child(3), td:last-child {{
    display: block; width: auto; border: 0; padding: .1rem 0 }}
  tr {{ display: block; border-top: 1px solid var(--rule); padding: .4rem 0 }}
}}
</style>
<h1>MRC conformance of {target}</h1>
<p>{summary}. Each rule names its source: MRC, IBTA and UET are public texts, a row is a choice of
openmrc where those are silent or disagree. Rules that fail stand first.</p>
{groups}
</html>
"""


def page(outcomes: Sequence[Outcome], target: str, rules: Sequence[Rule] = ()) -> str:
    """Return a page, one table per group: rules that fail first, with the packets that show it; for
    those of `rules` their exchange too.
    """
    exchanges = {rule.name: rule for rule in rules}
    failed = [each for each in outcomes if each.outcome == FAIL]
    tables = [("Failed", f"{len(failed)} of {len(outcomes)}", failed)]
    for group in dict.fromkeys(each.group for each in outcomes):
        own = [each for each in outcomes if each.group == group]
        tables.append((group, summary(own), [each for each in own if each.outcome != FAIL]))
    groups = "\n".join(
        f"<h2>{escape(title)} <span>{escape(counts)}</span></h2>\n<table>\n"
        + "\n".join(_row(each, exchanges.get(each.rule)) for each in own)
        + "\n</table>"
        for title, counts, own in tables
        if own
    )
    return _PAGE.format(target=escape(target), summary=escape(summary(outcomes)), groups=groups)


def _row(each: Outcome, rule: Rule | None) -> str:
    says, kind = escape(each.says), "fail" if each.outcome == FAIL else "other"
    if each.outcome == FAIL:
        says += f"<pre>{escape(chr(10).join(each.shown))}</pre>"
    elif each.why:
        says += f"<pre>{escape(each.why)}</pre>"
    if rule is not None:
        exchange = escape("\n".join(_exchange(rule)))
        says += f"<details><summary>exchange</summary><pre>{exchange}</pre></details>"
    return (
        f"<tr><td>{escape(each.rule)}<td>{says}<td>{escape(each.source)}"
        f'<td class="{kind}">{escape(each.outcome)}</tr>'
    )


def _exchange(rule: Rule) -> list[str]:
    """Return a rule's statements, as in its file."""
    settings = " ".join(f"{name}={value}" for name, value in rule.settings.items())
    return ([f"with: {settings}"] if settings else []) + [step.text for step in rule.steps]
