"""What pyproject.toml cannot say: which modules are compiled, and how. docs/compiled.md has the reasons.

Nothing is compiled, and no compiler needed, unless the environment variable SEALED_GATEWAY_COMPILE is 1.
"""

from __future__ import annotations

import os

from setuptools import Extension, setup

COMPILED = (
    "gateway/admission/callers.py",
    "gateway/admission/inflight.py",
    "gateway/admission/rate_limiter.py",
    "gateway/audit.py",
    "gateway/authoring/host.py",
    "gateway/calls.py",
    "gateway/carrier.py",
    "gateway/dispatch.py",
    "gateway/engine/host.py",
    "gateway/engine/journal.py",
    "gateway/engine/keys.py",
    "gateway/engine/leg.py",
    "gateway/engine/questions.py",
    "gateway/errors.py",
    "gateway/methods.py",
    "gateway/protocol/capabilities.py",
    "gateway/protocol/fields.py",
    "gateway/protocol/headers.py",
    "gateway/protocol/jsonrpc.py",
    "gateway/protocol/notifications.py",
    "gateway/protocol/param_headers.py",
    "gateway/protocol/released/notifications.py",
    "gateway/protocol/released/requests.py",
    "gateway/protocol/released/results.py",
    "gateway/protocol/released/tasks.py",
    "gateway/protocol/requests.py",
    "gateway/protocol/strict_json.py",
    "gateway/protocol/versions.py",
    "gateway/protocol/words.py",
    "gateway/released_wire.py",
    "gateway/sealing/base64url.py",
    "gateway/sealing/cipher.py",
    "gateway/sealing/envelope.py",
    "gateway/sealing/keyring.py",
    "gateway/sealing/state.py",
    "gateway/tallies.py",
    "gateway/web/endpoint.py",
    "gateway/web/exchange.py",
    "gateway/web/origins.py",
)
"""The modules of the hot path whose compilation pays, and changes nothing that anybody relies on."""


def extension_modules() -> list[Extension]:
    """Translate the modules to C with mypyc, if that is asked for; setuptools then calls the C compiler."""
    if os.environ.get("SEALED_GATEWAY_COMPILE") != "1":
        return []
    from mypyc.build import mypycify  # noqa: PLC0415 - needed here alone

    return mypycify(
        ["--config-file", "pyproject.toml", *COMPILED],
        opt_level="2",
        debug_level="0",
        multi_file=True,  # in a third less time than all of them in one file
        group_name="sealed_gateway",
    )


if __name__ == "__main__":
    setup(ext_modules=extension_modules())
