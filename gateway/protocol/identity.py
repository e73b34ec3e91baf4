"""Pure: how the server introduces itself to clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.runtime.version import __version__

DEFAULT_NAME: Final = "sealed-gateway"


class Identity(msgspec.Struct, frozen=True):
    """What a deployment serves, as clients show it. No sealed token is bound to it: releases may differ.

    The name is for programs, the title for people, the instructions for the language model.
    """

    name: str = DEFAULT_NAME
    version: str = __version__
    title: str | None = None
    instructions: str | None = None
    website_url: str | None = None
    icons: tuple[Mapping[str, Any], ...] = ()

    @property
    def display_name(self) -> str | None:
        """The name for people, or None if nobody has named the server."""
        return self.title or (None if self.name == DEFAULT_NAME else self.name)

    @property
    def summary(self) -> str:
        """The name, version and title, for people."""
        return f"{self.name} {self.version}{'' if self.title is None else f' ({self.title})'}"

    @property
    def brief(self) -> dict[str, Any]:
        """The required fields of an `Implementation`, for every result."""
        return {"name": self.name, "version": self.version}

    @property
    def titled(self) -> dict[str, Any]:
        """The `Implementation` of 2025-06-18."""
        return self.brief if self.title is None else {**self.brief, "title": self.title}

    @property
    def whole(self) -> dict[str, Any]:
        """The `Implementation` of 2025-11-25 and later."""
        fields = self.titled
        if self.website_url is not None:
            fields["websiteUrl"] = self.website_url
        if self.icons:
            fields["icons"] = list(self.icons)
        return fields

    @property
    def guidance(self) -> dict[str, Any]:
        """The field `instructions` of a result, if there are any."""
        return {} if self.instructions is None else {"instructions": self.instructions}
