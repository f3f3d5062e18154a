"""A job's secret: what is accepted as one, where it is read, and the keys that follow from it.

Whoever holds a proof (`line`) can test guesses without asking anybody, as fast as machines hash. So
only drawn secrets are accepted: `mrc secret` makes one. It is read from a file or from the
environment, never from a command line, which every user of a host can read.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import string

from openmrc.errors import InputError
from openmrc.reading import read_text
from openmrc.say import counted

VARIABLE = "OPENMRC_SECRET"
BYTES = 32  # of a new one
BYTES_MIN = 16
DIFFERENT_MIN = 8  # different bytes: of 16 drawn ones there are fewer once in 10^10 times
REMEDY = "make one with: mrc secret"


def new() -> bytes:
    """Return a new secret."""
    return secrets.token_bytes(BYTES)


def check(secret: bytes) -> bytes:
    """Return the secret; `InputError` if there is none, or it can be guessed."""
    if not secret:
        raise InputError(f"there is no secret, which both ends need; {REMEDY}")
    if len(secret) < BYTES_MIN:
        raise InputError(
            f"the secret has {counted(len(secret), 'byte')}, and could be guessed; {BYTES_MIN} or"
            f" more are accepted; {REMEDY}"
        )
    if len(set(secret)) < DIFFERENT_MIN:
        raise InputError(
            f"the secret repeats {counted(len(set(secret)), 'byte')}, and could be guessed; it must"
            f" be drawn at random; {REMEDY}"
        )
    return secret


def parse(text: str, name: str) -> bytes:
    """Return the secret that `name` holds in hex; `InputError`, which never shows it."""
    try:
        return check(bytes.fromhex(text.strip()))
    except ValueError:
        raise InputError(f"{name}: hex digits are accepted, two for each byte; {REMEDY}") from None
    except InputError as error:
        raise error.at(name) from None


def given(file: str | os.PathLike[str] | None, option: str = "--secret") -> bytes | None:
    """Return the secret in a file, which an option names, or without one that of the environment;
    None if there is neither.
    """
    if file is None:
        text = os.environ.get(VARIABLE)
        return None if text is None else parse(text, VARIABLE)
    wanted = (
        f"a file with the secret in hex, or set {VARIABLE}: every user of a host can read a command"
        " line"
    )
    hidden = _is_hex(str(file))  # a secret, taken for the name of its file
    try:
        text = read_text(file, wanted)
    except InputError as error:
        said = f": names no file that can be read; name {wanted}" if hidden else f" {error}"
        raise InputError(f"{option}{said}") from None
    return parse(text, option if hidden else f"{option} {file}")


def needed(file: str | os.PathLike[str] | None) -> bytes:
    """As `given`; `InputError` if there is none."""
    found = given(file)
    if found is None:
        raise InputError(
            "no secret: both ends need the same; name its file with --secret FILE, or set"
            f" {VARIABLE}; {REMEDY}"
        )
    return found


def of_agent(secret: bytes, nic: int) -> bytes:
    """Return the key of the agent of one NIC: with it an agent speaks for no other."""
    return _derived(secret, f"openmrc agent {nic}").digest()


def token(secret: bytes) -> str:
    """Return the token by which requests to a controller prove the job's secret."""
    return _derived(secret, "openmrc controller http").hexdigest()


def _is_hex(text: str) -> bool:
    """Whether a text could be a secret, and must not be shown."""
    return len(text) >= BYTES_MIN and all(c in string.hexdigits for c in text)


def _derived(secret: bytes, purpose: str) -> hmac.HMAC:
    return hmac.new(secret, purpose.encode(), hashlib.sha256)
