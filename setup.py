"""The compiled modules, which pyproject.toml cannot define. docs/run/compiled.md has the reasons.

Nothing is compiled, and no compiler is needed, unless the environment variable SEALED_GATEWAY_COMPILE is 1.
"""

from __future__ import annotations

import os

from setuptools import Extension, setup

COMPILED = {
    "gateway/admission/inflight.py": 5.5,
    "gateway/admission/rate_limiter.py": 1.8,
    "gateway/auth/verifier.py": 1.0,
    "gateway/calls/runner.py": 11.5,
    "gateway/engine/asking.py": 4.7,
    "gateway/engine/capabilities.py": 1.5,
    "gateway/engine/journal.py": 7.5,
    "gateway/engine/leg.py": 1.3,
    "gateway/engine/stoppable_leg.py": 0.7,
    "gateway/http/connection.py": 13.7,
    "gateway/http/cycle.py": 7.2,
    "gateway/observability/audit.py": 3.9,
    "gateway/observability/counters.py": 1.4,
    "gateway/observability/line_writer.py": 1.3,
    "gateway/observability/metrics.py": 1.6,
    "gateway/protocol/capabilities.py": 2.2,
    "gateway/protocol/fields.py": 1.2,
    "gateway/protocol/headers.py": 4.5,
    "gateway/protocol/jsonrpc.py": 1.9,
    "gateway/protocol/released/requests.py": 4.6,
    "gateway/protocol/requests.py": 1.3,
    "gateway/protocol/strict_json.py": 1.6,
    "gateway/sealing/binding.py": 1.7,
    "gateway/sealing/cipher.py": 1.3,
    "gateway/sealing/envelope.py": 1.5,
    "gateway/sealing/state.py": 1.6,
    "gateway/tokens/request_state.py": 1.9,
    "gateway/web/endpoint.py": 11.2,
    "gateway/web/exchange.py": 3.7,
    "gateway/wires/dispatch.py": 1.1,
    "gateway/wires/methods.py": 2.7,
    "gateway/wires/released/wire.py": 2.3,
}
"""The modules of the hot path, each with its largest share in the instructions of one leg, in percent.

`python -m bench.counts --shares` measures the shares, and prints a new version of this table. A module with less than
1 percent is removed, unless a compiled class inherits from one of its classes. A module may be here only if it behaves
the same when compiled; the rules for that are in tests/repository/test_compiled_rules.py.
"""


def extension_modules() -> list[Extension]:
    """Translate the modules to C with mypyc if asked to; setuptools then calls the C compiler."""
    if os.environ.get("SEALED_GATEWAY_COMPILE") != "1":
        return []
    from mypyc.build import mypycify  # noqa: PLC0415 - only needed here

    extensions: list[Extension] = mypycify(
        ["--config-file", "pyproject.toml", *COMPILED],
        opt_level="2",
        debug_level="0",
        multi_file=True,  # compiles in a third less time than a single file
        group_name="sealed_gateway",
    )
    for extension in extensions:
        # This makes calls between modules as cheap as calls inside one.
        extension.extra_compile_args += ["-flto=auto", "-fvisibility=hidden"]
        extension.extra_link_args += ["-flto=auto", "-O2"]
    return extensions


if __name__ == "__main__":
    setup(ext_modules=extension_modules())
