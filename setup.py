"""What pyproject.toml cannot say: which modules are compiled, and how. docs/compiled.md has the reasons.

Nothing is compiled, and no compiler needed, unless the environment variable SEALED_GATEWAY_COMPILE is 1.
"""

from __future__ import annotations

import os

from setuptools import Extension, setup

# A module may be here only if it does the same compiled. mypyc has these differences:
# - There is no limit of recursion: a stack that overflows ends the process. So nothing here calls itself for each level
#   of what a stranger or an author made (gateway/engine/values.py and gateway/sealing/packing.py do).
# - Types are enforced with a TypeError, those of the members of a collection as they are used. What comes from an
#   author or a stranger is `Any` until it has been checked.
# - `float` makes a float of an integer, and `int` takes a bool: what is told or kept as it was given is `Any` too.
# - `raise … from …` raises without its `from`. Where that matters, raise outside `except`, or do not compile.
# - An `await` in `except` or `finally` loses the error that is being handled: none is raised on after one
#   (gateway/web/events.py does).
# - A coroutine that is thrown away is not closed: its `finally` does not run. So what drives an author's coroutine is
#   not compiled, and neither is what a stack is searched for (gateway/authoring/served.py).
# - Nobody outside can inherit from a compiled class, so the tree of errors is not compiled, nor what authors see.
# - Constants that are `Final`, and calls among these modules, cannot be patched: what tests vary is an argument.
# - Keywords of a class are dropped: no `msgspec.Struct` here is frozen, which mypy holds, nor hashed, as a caller is
#   (gateway/sealing/principal.py).
# - A parameter cannot be deleted, and no attribute can be called `_thread`, a word of C.
COMPILED = (
    "gateway/admission/callers.py",
    "gateway/admission/inflight.py",
    "gateway/admission/rate_limiter.py",
    "gateway/auth/verifier.py",
    "gateway/calls/runner.py",
    "gateway/engine/capabilities.py",
    "gateway/engine/journal.py",
    "gateway/engine/keys.py",
    "gateway/engine/leg.py",
    "gateway/http/connection.py",
    "gateway/http/cycle.py",
    "gateway/observability/audit.py",
    "gateway/observability/counters.py",
    "gateway/observability/line_writer.py",
    "gateway/observability/metrics.py",
    "gateway/protocol/capabilities.py",
    "gateway/protocol/fields.py",
    "gateway/protocol/headers.py",
    "gateway/protocol/jsonrpc.py",
    "gateway/protocol/param_headers.py",
    "gateway/protocol/released/requests.py",
    "gateway/protocol/released/results.py",
    "gateway/protocol/requests.py",
    "gateway/protocol/strict_json.py",
    "gateway/runtime/fairness.py",
    "gateway/sealing/base64url.py",
    "gateway/sealing/binding.py",
    "gateway/sealing/cipher.py",
    "gateway/sealing/envelope.py",
    "gateway/sealing/state.py",
    "gateway/tokens/request_state.py",
    "gateway/web/arrival.py",
    "gateway/web/endpoint.py",
    "gateway/web/exchange.py",
    "gateway/web/origins.py",
    "gateway/wires/dispatch.py",
    "gateway/wires/methods.py",
    "gateway/wires/released/wire.py",
)
"""The modules of the hot path whose compilation pays, and changes nothing that anybody relies on."""


def extension_modules() -> list[Extension]:
    """Translate the modules to C with mypyc, if that is asked for; setuptools then calls the C compiler."""
    if os.environ.get("SEALED_GATEWAY_COMPILE") != "1":
        return []
    from mypyc.build import mypycify  # noqa: PLC0415 - needed here alone

    extensions: list[Extension] = mypycify(
        ["--config-file", "pyproject.toml", *COMPILED],
        opt_level="2",
        debug_level="0",
        multi_file=True,  # in a third less time than all of them in one file
        group_name="sealed_gateway",
    )
    for extension in extensions:
        # Calls from one module to another are then as cheap as those inside of one.
        extension.extra_compile_args += ["-flto=auto", "-fvisibility=hidden"]
        extension.extra_link_args += ["-flto=auto", "-O2"]
    return extensions


if __name__ == "__main__":
    setup(ext_modules=extension_modules())
