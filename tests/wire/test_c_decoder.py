"""The layouts in C and as a JSON schema: a decoder of C over every vector; the files' shape."""

from __future__ import annotations

import ipaddress
import json
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest

from openmrc.wire import layout
from openmrc.wire.layout import Field
from tests.wire.vectors import ACCEPTED, ELSEWHERE, GROUPS, REFUSED, ROOT, VECTORS, dscps, swapped

jsonschema = pytest.importorskip("jsonschema")
COMPILER = next((c for c in ("clang", "gcc", "cc") if shutil.which(c)), None)
FOLDER = ROOT / "conformance"


@pytest.fixture(scope="module")
def decoded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the decoder of C prints of each vector, by name."""
    if COMPILER is None:
        reason = "no C compiler: conformance/decode.c is not compiled; apt install clang"
        warnings.warn(reason, stacklevel=1)
        pytest.skip(reason)
    program = tmp_path_factory.mktemp("c") / "decode"
    strict = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run([COMPILER, *strict, "-o", program, FOLDER / "decode.c"], check=True)
    frames = [
        v["frame"] + (" swapped" if swapped(v) else "") + " trimmed={},{}".format(*dscps(v).trims)
        for v in VECTORS.values()
    ]
    told = subprocess.run(
        [program], input="\n".join(frames) + "\n", capture_output=True, text=True, check=True
    )
    return dict(zip(VECTORS, told.stdout.splitlines(), strict=True))


def number(field: Field, value: int | str) -> int:
    """The bits of a value as it stands in the files."""
    if isinstance(value, int):
        return value & (1 << field.bits) - 1
    if field.bits == 48:
        return int(value.replace(":", ""), 16)
    return int(value, 16) if value.startswith("0x") else int(ipaddress.ip_address(value))


def expected(vector: dict[str, Any]) -> dict[str, int]:
    known = {h.name: h for h in layout.HEADERS} | {"outer IPv6": layout.IPV6}
    told = {
        f"{name}.{field}": number(known[name].field(field), value)
        for name, fields in vector["headers"].items()
        for field, value in fields.items()
    }
    rest = ("ev", "trimmed", "payload_at", "payload_length")
    return told | {name: int(vector[name]) for name in rest}


def test_a_decoder_in_c_finds_every_field_of_every_vector(decoded: dict[str, str]) -> None:
    for name, vector in (ACCEPTED | ELSEWHERE).items():
        pairs = (part.split("=") for part in decoded[name].split("|"))
        assert {key: int(value, 16) for key, value in pairs} == expected(vector), name


def test_a_decoder_in_c_refuses_at_the_byte_named(decoded: dict[str, str]) -> None:
    for name, vector in REFUSED.items():
        why = vector["refused"]
        assert decoded[name] == f"refused {why['code']} {why['offset']}", name


def test_the_schema_describes_the_files_and_nothing_else() -> None:
    schema = json.loads((FOLDER / "vectors.schema.json").read_text())
    check = jsonschema.Draft202012Validator(schema)
    for group in GROUPS:
        vectors = json.loads((FOLDER / f"vectors/{group}.json").read_text())
        check.validate(vectors)
    sack = next(v for v in json.loads((FOLDER / "vectors/answers.json").read_text()) if "ev" in v)
    wrong: list[dict[str, Any]] = [{"ev": 1 << 32}, {"extra": 1}, {"headers": {"BTH": {}}}]
    for change in wrong:
        assert not check.is_valid([{**sack, **change}])


def test_every_opcode_code_and_field_is_in_the_header() -> None:
    text = Path(FOLDER / "mrc.h").read_text()
    for value, name in layout.OPCODES.items():
        assert f"#define MRC_OP_{name} 0x{value:02X}\n" in text
    assert "#define MRC_SETH_M 9, 2\n" in text
    assert "#define MRC_EETH_OP 12, 2\n" in text
