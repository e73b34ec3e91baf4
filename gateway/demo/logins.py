"""Two releases of one tool, for a rolling upgrade. The answer that both need is asked for only once."""

from __future__ import annotations

import os

from pydantic import BaseModel

from gateway import Context, Elicit, tool

RELEASE = int(os.environ.get("GATEWAY_DEMO_RELEASE", "1"))


class DemoLogin(BaseModel):
    name: str


SECOND_KEY, SECOND_SITE = ("google_login", "Google") if RELEASE == 1 else ("microsoft_login", "Microsoft")


@tool(version=RELEASE, asks={"github_login": DemoLogin, SECOND_KEY: DemoLogin})
async def link_accounts(ctx: Context) -> str:
    """Link your accounts at two sites. The second site depends on the release."""
    logins = await ctx.ask(
        **{
            "github_login": Elicit("Please provide your GitHub username", DemoLogin),
            SECOND_KEY: Elicit(f"Please provide your {SECOND_SITE} username", DemoLogin),
        }
    )
    return f"Linked GitHub account {logins['github_login'].name} and {SECOND_SITE} account {logins[SECOND_KEY].name}."
