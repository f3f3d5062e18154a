"""Add to each pinned requirement (`name==1.2; marker`, a line each) the hashes of all its files,
from standard input to standard output. With them `pip install --require-hashes` takes nothing
else, whichever index offers it.

    python .ci/hashes.py [INDEX ...] < pinned > lock     on PyPI, and on these
"""

import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor

PYPI = "https://pypi.org/simple"
FORM = "application/vnd.pypi.simple.v1+json"  # PEP 691
WHEEL = re.compile(r"[^-]+-([^-]+)-.+\.whl")
SOURCES = re.compile(r".+-([^-]+)\.(?:tar\.gz|zip)")
LINK = re.compile(r'href="([^"#]+)#sha256=([0-9a-f]{64})"')


def files(index: str, name: str) -> list[tuple[str, str]]:
    """The name and hash of each file that an index has of a project."""
    asked = urllib.request.Request(
        f"{index}/{name}/", headers={"Accept": f"{FORM}, text/html;q=0.1"}
    )
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            data, kind = answer.read().decode(), answer.headers["Content-Type"]
    except urllib.error.HTTPError:
        return []
    if "json" in kind:
        return [(one["filename"], one["hashes"]["sha256"]) for one in json.loads(data)["files"]]
    links = LINK.findall(data)
    return [(urllib.parse.unquote(link.rsplit("/", 1)[1]), digest) for link, digest in links]


def is_of(file: str, version: str) -> bool:
    """Whether a file is of this version."""
    found = WHEEL.fullmatch(file) or SOURCES.fullmatch(file)
    return found is not None and found[1] == version


def locked(line: str, indexes: list[str]) -> str:
    """A requirement with its hashes."""
    pin, _, marker = line.strip().partition(";")
    name, _, version = pin.strip().partition("==")
    normal = re.sub(r"[-_.]+", "-", name).lower()
    hashes = {
        digest for index in indexes for file, digest in files(index, normal) if is_of(file, version)
    }
    if not hashes:
        raise SystemExit(f"{pin}: no file of it is on {', '.join(indexes)}")
    first = f"{pin.strip()}{marker and ' ;'}{marker}"
    return " \\\n    ".join([first, *(f"--hash=sha256:{digest}" for digest in sorted(hashes))])


def main() -> None:
    """Lock what standard input pins."""
    indexes = [PYPI, *sys.argv[1:]]
    lines = [line for line in sys.stdin if line.strip() and not line.startswith("#")]
    with ThreadPoolExecutor(8) as pool:
        print("\n".join(pool.map(lambda line: locked(line, indexes), lines)))


if __name__ == "__main__":
    main()
