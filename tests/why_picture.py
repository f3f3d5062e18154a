"""Draws docs/why.png, the page of `mrc why` in README: `python -m tests.why_picture`.

The picture carries the paragraph that it shows, so that a test can compare it without a browser.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, PngImagePlugin

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs/why.png"
SCENARIO = ROOT / "examples/silent_switch.toml"
SIZE = "1300,960"
PARAGRAPH = "Description"


def draw() -> None:
    """Run the commands of README, and photograph the page."""
    mrc = [sys.executable, "-m", "openmrc.cli"]
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        subprocess.run([*mrc, "run", SCENARIO, "--out", "results"], cwd=here, check=True)
        page = ["--transport", "mrc", "--page", "why.html"]
        told = subprocess.run(
            [*mrc, "why", "results", *page], cwd=here, check=True, capture_output=True, text=True
        )
        subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE}",
             "--virtual-time-budget=3000", "--screenshot=why.png", "why.html"],
            cwd=here, check=True,
        )  # fmt: skip
        words = PngImagePlugin.PngInfo()
        words.add_text(PARAGRAPH, " ".join(told.stdout.split()))
        picture = Image.open(here / "why.png").quantize(64)  # few colours: a third of the bytes
        picture.save(FILE, pnginfo=words, optimize=True)


def paragraph() -> str:
    """Return the paragraph that the picture shows."""
    with Image.open(FILE) as picture:
        return str(picture.info[PARAGRAPH])


if __name__ == "__main__":
    draw()
