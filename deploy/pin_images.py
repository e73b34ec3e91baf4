"""Write the digests of all images into the files that name them: `deploy/pin [FILE…]`.

A tag may move to another image; a digest cannot. This asks the registry of each image for the digest of its tag, and
writes `name:tag@sha256:…` to deploy/Dockerfile, deploy/compose.yaml and the Kubernetes manifests, or to the given
files. Run it again for newer images of the same tags. Unless every registry answers, it changes nothing and exits
with 1. It ignores images that are built here.

For images without a registry in their name, it asks the host in PIN_REGISTRY: the one that your Docker pulls from, or
a mirror of it. Registries that need a login are not supported. Needs only the standard library.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from http.client import HTTPMessage
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
SECONDS = 10
KINDS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
OURS = "sealed-gateway"
LOOPBACK = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::\d+)?")
NAMED = re.compile(
    r"^(?P<before>\s*(?:-\s+)?(?:FROM|image:)\s+[\"']?)(?P<name>[^\s:@\"']+(?::\d+/[^\s:@\"']+)?):(?P<tag>[^\s@\"']+)"
    r"(?:@sha256:[0-9a-f]{64})?",
    re.MULTILINE,
)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Unknown(Exception):
    """The digest of an image cannot be found; the message says why."""


class Image(NamedTuple):
    """An image as a file names it."""

    name: str
    tag: str


def files() -> list[Path]:
    """Return the files of this directory that name images."""
    return [HERE / "Dockerfile", HERE / "compose.yaml", *sorted((HERE / "kubernetes").rglob("*.yaml"))]


def images(text: str) -> Iterable[Image]:
    """Yield the images that a text names, except ours."""
    for found in NAMED.finditer(text):
        if found["name"].rpartition("/")[2] != OURS:
            yield Image(found["name"], found["tag"])


def digest(image: Image) -> str:
    """Ask an image's registry for the digest that its tag has now.

    Raises:
        Unknown: the registry does not return it.
    """
    first, slash, rest = image.name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        host, repository = first, rest
    else:
        host = os.environ.get("PIN_REGISTRY", "")
        repository = image.name if slash else f"library/{image.name}"
    if not host:
        raise Unknown(f"no registry is known for {image.name}:{image.tag}; set PIN_REGISTRY to its host")
    scheme = "http" if LOOPBACK.fullmatch(host) else "https"
    url = f"{scheme}://{host}/v2/{repository}/manifests/{image.tag}"
    try:
        told = ask(url)
    except (OSError, ValueError) as error:
        raise Unknown(f"{host} returns nothing for {image.name}:{image.tag} ({error})") from None
    value = told.get("Docker-Content-Digest", "")
    if not DIGEST.fullmatch(value):
        raise Unknown(f"{host} returns no digest for {image.name}:{image.tag}")
    return value


def ask(url: str, token: str = "") -> HTTPMessage:
    """Return the headers of a manifest, with an anonymous token if the registry requires one."""
    headers = {"Accept": ", ".join(KINDS), **({"Authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(url, method="HEAD", headers=headers)  # noqa: S310 - `digest` chose the scheme
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:  # noqa: S310 - the same
            head: HTTPMessage = response.headers
            return head
    except urllib.error.HTTPError as error:
        wanted = dict(re.findall(r'(\w+)="([^"]*)"', error.headers.get("WWW-Authenticate", "")))
        if error.code != 401 or token or "realm" not in wanted:
            raise
    query = urllib.parse.urlencode({key: wanted[key] for key in ("service", "scope") if key in wanted})
    realm = urllib.parse.urlsplit(wanted["realm"])
    if realm.scheme != "https" and not LOOPBACK.fullmatch(realm.netloc):
        raise ValueError("it requires a token from a URL without TLS")
    with urllib.request.urlopen(f"{wanted['realm']}?{query}", timeout=SECONDS) as response:  # noqa: S310 - checked
        given = json.load(response)
    return ask(url, str(given.get("token") or given.get("access_token") or ""))


def main(paths: list[Path]) -> int:
    """Pin the images of these files; return the exit code."""
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    digests: dict[Image, str] = {}
    try:
        for image in sorted({image for text in texts.values() for image in images(text)}):
            digests[image] = digest(image)
    except Unknown as error:
        sys.stderr.write(f"nothing was changed: {error}\n")
        return 1

    def pinned(found: re.Match[str]) -> str:
        image = Image(found["name"], found["tag"])
        return f"{found['before']}{image.name}:{image.tag}@{digests[image]}" if image in digests else found[0]

    for path, text in texts.items():
        path.write_text(NAMED.sub(pinned, text), encoding="utf-8")
    for image, value in digests.items():
        sys.stdout.write(f"{image.name}:{image.tag} {value}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main([Path(name) for name in sys.argv[1:]] or files()))
