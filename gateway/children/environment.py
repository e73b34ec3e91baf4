"""The variables of child processes: those that programs need to run, and those that the operator gives them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

_NEEDED: Final = re.compile(
    r"HOME|LOGNAME|PATH|SHELL|TERM|USER|LANG|LC_\w+|TZ|TMPDIR|XDG_\w+"
    r"|(?:http|https|all|no)_proxy|(?:HTTP|HTTPS|ALL|NO)_PROXY"
    r"|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|NODE_EXTRA_CA_CERTS",
    re.ASCII,
)
_OWN: Final = re.compile("GATEWAY_|OTEL_", re.IGNORECASE)


def environment(environ: Mapping[str, str], given: Mapping[str, str], secrets: Collection[str] = ()) -> dict[str, str]:
    """Return the variables of a child: what it needs of `environ`, and what it is given.

    No variable of the gateway itself is among them, and none with the value of a secret.
    """
    needed = {name: value for name, value in environ.items() if _NEEDED.fullmatch(name)}
    wanted = {**needed, **given}
    withheld = set(withheld_names(wanted, secrets))
    return {name: value for name, value in wanted.items() if name not in withheld}


def withheld_names(variables: Mapping[str, str], secrets: Collection[str]) -> Iterator[str]:
    """Yield the names of variables that no child gets."""
    for name, value in variables.items():
        if _OWN.match(name) or (value and value in secrets):
            yield name
