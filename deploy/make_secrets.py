"""Make what a deployment on one machine keeps secret, once: `python make_secrets.py DIRECTORY`.

Writes the files `seal_keys` and `jwt_secret`, each only if it is missing, so that a second run changes nothing. A
file appears whole or not at all, and only its owner can read it. Needs nothing but the standard library.
"""

from __future__ import annotations

import base64
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path


def _seal_key() -> str:
    """Return what `gateway keys new` prints."""
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()


SECRETS: Mapping[str, Callable[[], str]] = {
    "seal_keys": _seal_key,
    "jwt_secret": lambda: secrets.token_hex(32),
}


def make_missing(directory: Path) -> list[str]:
    """Write each secret that is missing, and return the names of those written.

    Raises:
        OSError: the directory cannot be written.
    """
    return [name for name, make in SECRETS.items() if _write_once(directory / name, make())]


def _write_once(path: Path, text: str) -> bool:
    """Write a file, unless it is there; tell whether it was written."""
    if path.exists():
        return False
    descriptor, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        # Unlike a rename, a link never replaces what somebody else has written meanwhile.
        os.link(scratch, path)
    except FileExistsError:
        return False
    finally:
        Path(scratch).unlink()
    return True


if __name__ == "__main__":
    made = make_missing(Path(sys.argv[1]))
    sys.stdout.write(f"made: {', '.join(made)}\n" if made else "all secrets are there\n")
