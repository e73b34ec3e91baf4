"""A gateway in which every process has its own key."""

from __future__ import annotations

import os
import secrets
import sys

from gateway.cli import main as cli
from gateway.sealing.keyring import generate_entry

os.environ["GATEWAY_SEAL_KEYS"] = generate_entry(secrets.token_bytes)

if __name__ == "__main__":
    sys.exit(cli.main())
