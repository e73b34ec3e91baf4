"""Importing the package loads few modules, and offers all public names."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gateway

pytestmark = pytest.mark.slow


def loaded_by(statement: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has loaded after the statement."""
    code = f"{statement}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = {"fastapi", "starlette", "redis", "pydantic", "jsonschema_rs", "cryptography", "uvicorn", "asyncio", "jwt"}
    assert loaded_by("import gateway").isdisjoint(heavy)


def test_what_puts_a_gateway_into_an_application_loads_it_when_it_is_called() -> None:
    web = {"fastapi", "starlette", "uvicorn"}
    assert loaded_by("from gateway import draining, mount").isdisjoint(web)
    assert "fastapi" in loaded_by("import gateway; gateway.draining()")


def test_the_authoring_api_loads_neither_a_web_framework_nor_a_storage_client() -> None:
    web_and_storage = {"fastapi", "starlette", "redis", "uvicorn", "jwt", "prometheus_client"}
    loaded = loaded_by("from gateway import Context, tool")
    assert "pydantic" in loaded
    assert loaded.isdisjoint(web_and_storage | {"cryptography"})
    assert loaded_by("from gateway import *").isdisjoint(web_and_storage)


def test_every_public_name_can_be_used_and_is_listed() -> None:
    assert dir(gateway) == sorted(gateway.__all__)
    for name in gateway.__all__:
        assert getattr(gateway, name) is not None
    assert gateway.testing.run.__name__ == "run"
    assert gateway.content.text("x") == {"type": "text", "text": "x"}


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'gateway' has no attribute 'nonsense'"):
        _ = gateway.nonsense
