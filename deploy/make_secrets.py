"""Make the secrets of a deployment on one machine, once: `python make_secrets.py DIRECTORY [STORE_DIRECTORY]`.

Writes the files `seal_keys`, `jwt_secret` and `redis_url`, each only if it is missing, so a second run changes nothing.
A file appears completely or not at all, and only its owner can read it. For Redis, which runs as another user, it
writes `users.acl` to the second directory: the hash of the password in `redis_url`, and a user without rights for the
health check. Needs only the standard library.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit


def _seal_key() -> str:
    """Return a new key, as `gateway keys new` prints it."""
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()


SECRETS: Mapping[str, Callable[[], str]] = {
    "seal_keys": _seal_key,
    "jwt_secret": lambda: secrets.token_hex(32),
    "redis_url": lambda: f"redis://:{secrets.token_hex(32)}@redis:6379/0",
}


def make_missing(directory: Path) -> list[str]:
    """Write each secret that is missing, and return the names of those written.

    Raises:
        OSError: the directory cannot be written.
    """
    return [name for name, make in SECRETS.items() if _write_once(directory / name, make())]


def let_in(directory: Path, store_directory: Path) -> None:
    """Write the users of Redis: one with the password of its URL, and one without rights that may only ping.

    Raises:
        OSError: a directory cannot be read or written.
    """
    password = urlsplit((directory / "redis_url").read_text(encoding="ascii").strip()).password or ""
    known = hashlib.sha256(password.encode()).hexdigest()
    scratch = store_directory / ".users.acl"
    scratch.write_text(f"user default on #{known} ~* &* +@all\nuser health on nopass -@all +ping\n", encoding="ascii")
    scratch.chmod(0o644)
    scratch.replace(store_directory / "users.acl")


def _write_once(path: Path, text: str) -> bool:
    """Write a file unless it exists, and return whether it was written."""
    if path.exists():
        return False
    descriptor, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        # Unlike a rename, a link never replaces a file that another process has just written.
        os.link(scratch, path)
    except FileExistsError:
        return False
    finally:
        Path(scratch).unlink()
    return True


if __name__ == "__main__":
    made = make_missing(Path(sys.argv[1]))
    if sys.argv[2:]:
        let_in(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.write(f"made: {', '.join(made)}\n" if made else "all secrets exist already\n")
