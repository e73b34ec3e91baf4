"""Ask each user once for a secret, on a page of your own.

Run it as ``uvicorn --factory user_secret:make_app``, with the settings of a replica, ``SECRETS_FILE=secrets.db``,
``SITE_URL=https://example.com`` and a ``SECRETS_KEY`` from ``python -c "from cryptography.fernet import Fernet;
print(Fernet.generate_key().decode())"``. Replicas share all of them.

A secret must never pass through the client, where a model and its logs could see it. So `elicit_url` sends the user to
a page, and the tool finds the secret in the database.

URLs get shared. Mallory can start a call, get its URL, and send it to Ada. If the page trusted the URL alone, Ada's
secret would become Mallory's. So the page compares two users: the one who called the tool, who is sealed into the URL,
and the one who has signed in to the website. It stores nothing unless they are the same.
See https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation, "Safe URL Handling" and "Phishing".
"""

from __future__ import annotations

import asyncio
import html
import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any
from urllib.parse import parse_qs, quote

from cryptography.fernet import Fernet, InvalidToken
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse

import gateway
from gateway import Context, Principal, tool

MAX_FORM_BYTES = 4096
MINUTES = 10
"""How long the URL of a page works."""
KEEP_SECONDS = MINUTES * 60 + 120
"""How long a used ticket is remembered: longer than it works, as clocks differ."""
ASK_TIMES = 3
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
"""No other page may show this one in a frame, or learn its URL."""

FORM = """<!doctype html>
<title>Weather key</title>
<form method="post">
  <p>Your assistant asked for the key of your weather account, {user}. Did you ask it to?</p>
  <input type="hidden" name="ticket" value="{ticket}">
  <label>Key <input type="password" name="secret" autocomplete="off" required></label>
  <button>Save</button>
</form>"""
SAVED = "<!doctype html><title>Weather key</title><p>Saved. Go back to your assistant and continue.</p>"


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    """Open the database, and commit at the end."""
    path = os.environ["SECRETS_FILE"]
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, mode=0o600))  # if it is new, only this user may read it
    connection = sqlite3.connect(path, timeout=10)
    try:
        with connection:
            connection.execute("CREATE TABLE IF NOT EXISTS secrets (user TEXT PRIMARY KEY, sealed BLOB NOT NULL)")
            connection.execute("CREATE TABLE IF NOT EXISTS used (ticket TEXT PRIMARY KEY, at REAL NOT NULL)")
            yield connection
    finally:
        connection.close()


def fernet() -> Fernet:
    """Return the cipher for secrets and tickets."""
    return Fernet(os.environ["SECRETS_KEY"])


def user_of(principal: Principal) -> str:
    """Return one name for a user, whatever client they use. A subject alone is unique only for its issuer."""
    return json.dumps([principal.issuer, principal.subject])


def secret_of(user: str) -> str | None:
    """Return a user's secret, or None if there is none yet."""
    with database() as connection:
        for (sealed,) in connection.execute("SELECT sealed FROM secrets WHERE user = ?", [user]):
            kind, secret = json.loads(fernet().decrypt(sealed))
            return str(secret) if kind == f"secret of {user}" else None
    return None


def store(request: str, user: str, secret: str) -> bool:
    """Store a user's secret, and return True. Return False if something was stored for this request before."""
    sealed = fernet().encrypt(json.dumps([f"secret of {user}", secret]).encode())
    now = time.time()
    try:
        with database() as connection:
            connection.execute("DELETE FROM used WHERE at < ?", [now - KEEP_SECONDS])
            connection.execute("INSERT INTO used VALUES (?, ?)", [request, now])
            connection.execute("INSERT OR REPLACE INTO secrets VALUES (?, ?)", [user, sealed])
    except sqlite3.IntegrityError:
        return False
    return True


def make_ticket(user: str, request: str) -> str:
    """Return what the URL carries: who asks, sealed. Nobody can make or change one without the key."""
    return fernet().encrypt(json.dumps(["ticket", user, request]).encode()).decode()


def refusal(status: int, text: str) -> HTTPException:
    """Return the error of a page, with the headers that every page has."""
    return HTTPException(status, text, headers=HEADERS)


def read_ticket(ticket: str) -> tuple[str, str]:
    """Return the user and the request of a ticket; answer 400 if it is forged or too old."""
    try:
        kind, user, request = json.loads(fernet().decrypt(ticket, ttl=MINUTES * 60))
    except (InvalidToken, ValueError):
        kind = None
    if kind != "ticket":
        raise refusal(400, "This link is too old or damaged. Ask your assistant for a new one.")
    return user, request


@tool
async def forecast(ctx: Context, city: str) -> str:
    """Return the weather forecast of a city."""
    if ctx.principal is None or not ctx.principal.subject:  # without a subject, all would share one secret
        return "Sign in first: the forecast comes from your own weather account."
    user = user_of(ctx.principal)
    for attempt in range(1, ASK_TIMES + 1):
        # Not a step: the result of a step is stored.
        secret = await asyncio.to_thread(secret_of, user)
        if secret is not None:
            return ask_weather(city, secret)
        ticket = make_ticket(user, f"{ctx.call_id} {attempt}")
        # The user only agrees to go there. Whether they saved a key is in the database.
        await ctx.elicit_url(
            f"key {attempt}",
            "Enter the key of your weather account on our page. Then continue.",
            f"{os.environ['SITE_URL']}/secret?ticket={quote(ticket)}",
        )
    return "There is still no key for your weather account."


def ask_weather(city: str, secret: str) -> str:
    """Stand for the request to the weather service, which would carry the secret."""
    return f"{city}: sunny (with a key of {len(secret)} characters)"


def signed_in_user(_request: Request) -> str | None:
    """Return `user_of` the visitor of this website, or None. Replace it with the session of your own web login.

    It must sign in users at the identity provider that issues their tokens, so that both have the same names.
    """
    return None


router = APIRouter()
Visitor = Annotated[str | None, Depends(signed_in_user)]


def check(ticket: str, visitor: str | None) -> str:
    """Return the request that a ticket is for, if the visitor is the user who made it."""
    if visitor is None:
        raise refusal(401, "Sign in first, then open the link again.")
    user, request = read_ticket(ticket)
    if user != visitor:
        raise refusal(403, "Somebody else asked for this page. If they sent you the link, do not trust them.")
    return request


@router.get("/secret")
async def show_form(ticket: str, visitor: Visitor) -> HTMLResponse:
    """Show the form."""
    check(ticket, visitor)
    _issuer, subject = json.loads(visitor or "")
    return HTMLResponse(FORM.format(user=html.escape(subject), ticket=html.escape(ticket)), headers=HEADERS)


@router.post("/secret")
async def save_secret(request: Request, visitor: Visitor) -> HTMLResponse:
    """Save the secret. The ticket also proves that this site made the form, as no other site can get one."""
    fields = await read_form(request)
    asked = check(fields.get("ticket", ""), visitor)
    secret = fields.get("secret", "").strip()
    if not secret:
        raise refusal(400, "Enter the key.")
    if not await asyncio.to_thread(store, asked, visitor or "", secret):
        raise refusal(400, "This form was used before.")
    return HTMLResponse(SAVED, headers=HEADERS)


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form, which is small."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise refusal(413, "Too long.")
    return {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def make_app(**settings: Any) -> FastAPI:
    """Return the application: the page, and the tool at `/tools/mcp`."""
    app = FastAPI(openapi_url=None)
    app.include_router(router)
    gateway.mount(app, "/tools", tools=__name__, **settings)
    return app
