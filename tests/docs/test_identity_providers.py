"""Identity providers: a token of each form in the table is accepted with the settings of its row, and needs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.auth import TokenVerifier, make_verifier
from gateway.errors import HttpRefusal
from gateway.observability.metrics import Telemetry
from gateway.settings.model import Settings
from tests.auth.forms import PAGE, PUBLIC, Form, forms
from tests.docs.markdown import rows_of, section_of
from tests.identity import key_set, rsa_key, signed

PROVIDERS = {
    "Microsoft Entra ID",
    "Okta",
    "Auth0",
    "Keycloak",
    "Amazon Cognito",
    "Google",
    "PingFederate",
    "oidc-provider",
}
SERVING = {"GATEWAY_TOOLS": "gateway.demo", "GATEWAY_SEAL_KEYS": "1f" * 32, **PUBLIC}


async def scopes(form: Form, folder: Path) -> frozenset[str] | None:
    """Return what a token of a form grants, None if it is refused."""
    file = folder / "jwks.json"
    file.write_bytes(key_set(rsa_key()))
    environ = {name: value for name, value in form.settings.items() if name != "GATEWAY_JWKS_URL"}
    verify = make_verifier(Settings.load({**PUBLIC, **environ, "GATEWAY_JWKS_FILE": str(file)}), Telemetry())
    assert isinstance(verify, TokenVerifier)
    try:
        return (await verify.authenticate(f"Bearer {signed(rsa_key(), form.header, form.claims())}")).scopes
    except HttpRefusal:
        return None


def test_every_provider_has_a_row_in_each_table_and_says_what_is_special() -> None:
    names = [form.provider for form in forms()]
    assert {name.partition(",")[0] for name in names} == PROVIDERS
    assert [row[0] for row in rows_of(section_of(PAGE, "Where the keys are"), 3)] == names
    items = section_of(PAGE, "What is special").split("\n- ")[1:]
    assert [item.partition("**: ")[0].removeprefix("- ").removeprefix("**") for item in items] == names


@pytest.mark.parametrize("form", forms(), ids=str)
async def test_a_token_of_each_form_is_accepted_and_grants_what_the_row_says(form: Form, tmp_path: Path) -> None:
    Settings.load({**SERVING, **form.settings}).check_serving()
    assert await scopes(form, tmp_path) == form.scopes


NEEDED = [
    (form, setting)
    for form in forms()
    for setting in form.settings
    if setting not in ("GATEWAY_JWT_ISSUER", "GATEWAY_JWKS_URL")
]


@pytest.mark.setting("jwt_scope_claim", "jwt_client_ids", "jwt_audience")
@pytest.mark.parametrize(("form", "setting"), NEEDED, ids=str)
async def test_each_setting_of_a_row_is_needed(form: Form, setting: str, tmp_path: Path) -> None:
    granted = await scopes(form.without(setting), tmp_path)
    assert granted is None or not granted & {"read", "write"}
