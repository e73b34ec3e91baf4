"""Takes the pictures of the playground in the documents.

Usage: `python -m tests.playground.pictures`, after `make playground`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

from tests.cli.test_dev import Dev

HERE = Path(__file__).parent
TOP = HERE.parent.parent
PEERS = TOP / ".venvs/browser"


def main() -> None:
    """Run the demo tools, and write the pictures to `docs/images`."""
    chromium = shutil.which("chromium") or "chromium"
    with tempfile.TemporaryDirectory() as folder, closing(Dev(cwd=Path(folder))) as dev:
        dev.read_until_ready()
        subprocess.run(
            [str(PEERS / "bin/node"), str(HERE / "pages/pictures.mjs")],
            env={
                **os.environ,
                "PEERS": str(PEERS),
                "CHROMIUM": chromium,
                "DEV_URL": dev.page,
                "FOLDER": str(TOP / "docs/images"),
            },
            check=True,
        )


if __name__ == "__main__":
    main()
