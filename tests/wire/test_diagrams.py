"""The page about the wire: its diagrams and tables are those of the layout, its examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from openmrc.wire import diagrams, generated, layout
from openmrc.wire.layout import Field, Header

ROOT = Path(__file__).resolve().parents[2]
PAGE = generated.PAGE.read_text(encoding="utf-8")
BTH = """\
 0                   1                   2                   3
 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
|     opcode    |A|m|pad|  tver |              pkey             |
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
|    reserved   |                    dest_qpn                   |
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
|a|r|B|C|  res  |                      psn                      |
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+"""
ETHERNET = """\
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
|                            dst_mac                            |
+                               +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
|                               |                               |
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+                               +
|                            src_mac                            |
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
|           ethertype           |
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+"""


def made_of(*fields: Field) -> Header:
    return Header("X", "Example", "nowhere", fields)


def test_a_header_is_drawn_in_rows_of_32_bits() -> None:
    assert diagrams.diagram(layout.BTH) == BTH


def test_a_field_that_goes_on_in_the_next_row_is_open_to_it() -> None:
    assert diagrams.diagram(layout.ETHERNET).split("\n", 2)[2] == ETHERNET


def test_a_short_header_has_a_short_ruler() -> None:
    drawn = diagrams.diagram(made_of(Field("a", 1), Field("rest", 7)))
    assert drawn == "\n".join(
        [" 0", " 0 1 2 3 4 5 6 7", "+-+-+-+-+-+-+-+-+", "|a|     rest    |", "+-+-+-+-+-+-+-+-+"]
    )


@pytest.mark.parametrize("header", layout.HEADERS)
def test_every_field_stands_in_its_diagram_or_has_a_letter(header: Header) -> None:
    drawn = diagrams.diagram(header)
    told = diagrams.field_table(header)
    for field in header.fields:
        if field.name != layout.RESERVED:
            letter = re.search(rf"\| `{field.name}` \(([A-Z])\) \|", told)
            assert f"| `{field.name}`" in told
            assert re.search(rf"[| ]{letter[1] if letter else field.name}[| ]", drawn), field.name


def test_the_table_says_bits_meaning_and_named_values() -> None:
    header = made_of(
        Field("way", 4, "where to", names={0: "LEFT", 1: "RIGHT"}),
        Field("reserved", 4),
        Field("code", 8, "why", names={1: "HEAT", 200: "COLD"}),
        Field("shift", 16, "how far", signed=True),
    )
    assert diagrams.field_table(header).splitlines()[2:] == [
        "| 0-3 | `way` | where to (0 LEFT, 1 RIGHT) |",
        "| 4-7 | reserved | |",
        "| 8-15 | `code` | why (0x01 HEAT, 0xC8 COLD) |",
        "| 16-31 | `shift` | how far, signed |",
    ]


def test_the_lengths_of_opcodes_are_those_of_reference_2_1_and_2_7() -> None:
    rows = {line.split(" | ")[1]: line for line in diagrams.opcodes().splitlines()}
    assert "| 142 |" in rows["RDMA_WRITE_MIDDLE"]  # 146 B with FCS
    assert "| 154 |" in rows["RELIABILITY_SACK"]  # 158 B with FCS


# --- the page


def test_the_page_has_every_header_as_the_layout_has_it() -> None:
    assert [name for name, part in diagrams.parts().items() if part not in PAGE] == []
    assert generated.replace_parts(PAGE, diagrams.parts()) == PAGE


def test_a_part_is_replaced_and_the_rest_is_left_alone() -> None:
    text = "a\n-- made from layout: b c\nold\nolder\n-- end of b c\nd\n"
    new = generated.replace_parts(text, {"b c": "new\n"})
    assert new == "a\n-- made from layout: b c\nnew\n-- end of b c\nd\n"
    assert generated.replace_parts(new, {"b c": "new\n"}) == new
    with pytest.raises(KeyError):
        generated.replace_parts(text, {})


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_the_examples_run(block: str) -> None:
    exec(compile(block, "wire.md", "exec"), {})


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        file, _, section = target.partition("#")
        page = (ROOT / "docs" / file).resolve() if file else generated.PAGE
        assert page.exists(), target
        if section:
            titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
            assert section in {title.lower().replace(" ", "-") for title in titles}, target


def test_every_place_and_test_of_a_choice_exists() -> None:
    choices = PAGE.split("## Choices")[1]
    for place in re.findall(r"`(wire/\w+\.\w+)`", choices):
        assert (ROOT / "src/openmrc" / place).exists(), place
    tests = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/test_*.py"))
    named = re.findall(r"`(test_\w+)`", choices)
    assert len(named) == 21
    assert [name for name in named if f"def {name}(" not in tests] == []
