"""Pure: URLs that a client may show to its user as a link, or fetch as a picture.

Clients open such a URL for the user (MCP "Elicitation", URL mode). So it must be one that a browser opens as a page of
a server, and that looks to a person like what it is.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.protocol.uris.canonical import NOT_OF_URIS

MAX_URL_LENGTH: Final = 8192

_MAX_PORT: Final = 65535
_WEB: Final = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)
_HOST: Final = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.~-]*|\[[0-9A-Fa-f:.]+\])(?::([0-9]{0,5}))?", re.ASCII)


def web_url_problem(url: object) -> str | None:
    """Return why a value is not an http or https URL that a user can be sent to, and what to do; None if it is one.

    The result is the end of a sentence that begins with the URL. It must have a host, and no user name: in
    `https://bank.example@evil.example/`, people read the wrong name.
    """
    web = _WEB.match(url) if isinstance(url, str) else None
    if web is None:
        return "is not an absolute http or https URL; write one, such as https://example.com/login"
    if "@" in web[1]:
        return "has a user name or password; remove it"
    host = _HOST.fullmatch(web[1])
    if host is None or int(host[1] or 0) > _MAX_PORT:
        return "has no valid host; write one, non-ASCII names in Punycode (xn--…)"
    if len(web.string) > MAX_URL_LENGTH:
        return f"has {len(web.string)} characters; use at most {MAX_URL_LENGTH}"
    if NOT_OF_URIS.search(web.string, web.end()):
        return "has characters that a URL must not have; percent-encode them"
    return None
