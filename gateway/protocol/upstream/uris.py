"""Pure: the URIs under which resources of upstreams are served, and the way back.

`file:///a` of the upstream `docs` becomes `docs+file:///a`. A prefix contains no `+`, so the first `+` of a scheme ends
it. Two kinds of texts look different:

- `ui://host/page` becomes `ui://docs.host/page`, because clients recognise the pages of apps by their scheme.
- A text that is not a URI becomes `docs+x:` and the percent-encoded text. So does a URI whose scheme is `x`; otherwise
  nothing would show which of the two a URI was.

Scheme and prefix are compared without case (RFC 3986 section 3.1): many clients write them in lower case.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from gateway.protocol.uris.canonical import NOT_OF_URIS

_TEXT_SCHEME: Final = "x"
_APP_SCHEME: Final = "ui://"

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):", re.ASCII)
_TEMPLATE: Final = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]*):(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2}|\{[^{}]*\})*", re.ASCII
)
_EXPRESSION: Final = re.compile(r"(\{[^{}]*\})")
_BROKEN_ENCODING: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def own_uri(prefix: str, uri: str) -> str:
    """Return the URI under which an upstream's resource is served.

    The result is a valid URI whatever `uri` is, except that the prefix "" changes nothing. Lone surrogates become `?`.
    """
    if not prefix:
        return uri
    if must_be_encoded(uri):
        return f"{prefix}+{_TEXT_SCHEME}:{quote(uri, safe='', errors='replace')}"
    return _with_prefix(prefix, uri)


def must_be_encoded(uri: str) -> bool:
    """Return whether a text is not a URI, or could be taken for one that was encoded."""
    scheme = _SCHEME.match(uri)
    return scheme is None or scheme[1].lower() == _TEXT_SCHEME or NOT_OF_URIS.search(uri, scheme.end()) is not None


def own_template(prefix: str, template: str) -> str:
    """Return the URI template (RFC 6570) under which an upstream's resources are served. Expressions stay as they are.

    A URI that a client makes from it stands for the URI that it would have made from the upstream's own template. The
    text of a template that is not one of URIs is percent-encoded, so there the values lose one encoding on the way.
    """
    if not prefix:
        return template
    whole = _TEMPLATE.fullmatch(template)
    if whole is not None and whole[1].lower() != _TEXT_SCHEME:
        return _with_prefix(prefix, template)
    parts = enumerate(_EXPRESSION.split(template))
    encoded = (part if index % 2 else quote(part, safe="", errors="replace") for index, part in parts)
    return f"{prefix}+{_TEXT_SCHEME}:{''.join(encoded)}"


def _with_prefix(prefix: str, uri: str) -> str:
    if uri[: len(_APP_SCHEME)].lower() == _APP_SCHEME:
        return f"{uri[: len(_APP_SCHEME)]}{prefix}.{uri[len(_APP_SCHEME) :]}"
    return f"{prefix}+{uri}"


def upstream_uri(prefix: str, uri: str) -> str | None:
    """Return the upstream's own URI for one that `own_uri` returned, None if it has another prefix or is malformed."""
    if not prefix:
        return uri
    app = len(_APP_SCHEME)
    if uri[:app].lower() == _APP_SCHEME:
        start = app + len(prefix) + 1
        return uri[:app] + uri[start:] if uri[app:start].lower() == f"{prefix}." else None
    start = len(prefix) + 1
    if uri[:start].lower() != f"{prefix}+":
        return None
    rest = uri[start:]
    if rest[: len(_TEXT_SCHEME) + 1].lower() != f"{_TEXT_SCHEME}:":
        return rest or None
    return _decoded(rest[len(_TEXT_SCHEME) + 1 :])


def _decoded(text: str) -> str | None:
    if _BROKEN_ENCODING.search(text):
        return None
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeError:
        return None
