"""`deploy/pin` writes the digests that registries return, all of them or none, and invents none."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from gateway.runtime.version import __version__
from tests.deploy.files import DEPLOY, DOCKERFILE, PINNED, compose, dockerfile

pytestmark = pytest.mark.slow

FOREIGN = sorted(
    {arguments.split()[0] for name, arguments in dockerfile() if name == "FROM"}
    | {found["image"] for found in compose()["services"].values() if "build" not in found}
)


class Registry(http.server.BaseHTTPRequestHandler):
    """Returns the digest of any manifest that it has, to clients that got a token here."""

    missing = ""
    digests = True

    def do_HEAD(self) -> None:
        _, version, *repository, manifests, tag = urlsplit(self.path).path.split("/")
        name = "/".join(repository)
        if self.headers["Authorization"] != f"Bearer for {name}":
            self.send_response(401)
            place = f"http://{self.headers['Host']}/token"
            self.send_header(
                "WWW-Authenticate", f'Bearer realm="{place}",service="here",scope="repository:{name}:pull"'
            )
        elif (version, manifests) != ("v2", "manifests") or (self.missing and self.missing in name):
            self.send_response(404)
        else:
            assert "application/vnd.oci.image.index.v1+json" in self.headers["Accept"]
            self.send_response(200)
            if self.digests:
                self.send_header("Docker-Content-Digest", f"sha256:{(name + tag).encode().hex():0<64.64}")
        self.end_headers()

    def do_GET(self) -> None:
        (scope,) = parse_qs(urlsplit(self.path).query)["scope"]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"token": f"for {scope.split(':')[1]}"}).encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def registry() -> Iterator[tuple[type[Registry], str]]:
    handler = type("Handler", (Registry,), {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield handler, f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def deploy(tmp_path: Path) -> Path:
    """A copy of everything that is deployed."""
    return Path(shutil.copytree(DEPLOY, tmp_path / "deploy"))


def pin(deploy: Path, registry: str = "") -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], **({"PIN_REGISTRY": registry} if registry else {})}
    return subprocess.run([str(deploy / "pin")], env=environ, capture_output=True, text=True, check=False)


def texts(deploy: Path) -> dict[Path, str]:
    return {path.relative_to(deploy): path.read_text() for path in deploy.rglob("*") if path.is_file()}


def test_every_image_of_others_gets_the_digest_that_its_registry_gives(
    deploy: Path, registry: tuple[type[Registry], str]
) -> None:
    before = texts(deploy)
    done = pin(deploy, registry[1])
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == [image.partition("@")[0] for image in FOREIGN]
    after = texts(deploy)
    assert {path for path in before if before[path] != after[path]} == {Path("Dockerfile"), Path("compose.yaml")}
    for line in done.stdout.splitlines():
        image, digest = line.split()
        found = [text for text in after.values() if f" {image}@{digest}" in text]
        assert found
        assert PINNED.fullmatch(f"{image}@{digest}")
    again = pin(deploy, registry[1])
    assert again.returncode == 0
    assert texts(deploy) == after
    assert f"sealed-gateway:{__version__}@" not in "".join(after.values())


def test_without_a_registry_nothing_is_changed_and_one_line_says_so(deploy: Path) -> None:
    before = texts(deploy)
    for registry in ("", "127.0.0.1:1"):
        done = pin(deploy, registry)
        assert done.returncode == 1
        assert done.stderr.startswith("nothing was changed: ")
        assert (done.stdout, done.stderr.count("\n")) == ("", 1)
        assert texts(deploy) == before


@pytest.mark.parametrize("wrong", [{"missing": "redis"}, {"digests": False}])
def test_one_image_that_a_registry_does_not_tell_leaves_all_as_they_are(
    deploy: Path, registry: tuple[type[Registry], str], wrong: dict[str, object]
) -> None:
    for name, value in wrong.items():
        setattr(registry[0], name, value)
    before = texts(deploy)
    done = pin(deploy, registry[1])
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert texts(deploy) == before


def test_an_image_that_names_its_registry_is_asked_for_there(
    tmp_path: Path, registry: tuple[type[Registry], str]
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(f"containers:\n  - image: {registry[1]}/team/tool:1.2.3\n  - image: sealed-gateway:1.0.0\n")
    command = [str(DEPLOY / "pin"), str(file)]
    done = subprocess.run(command, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{registry[1]}/team/tool:1.2.3@sha256:" in file.read_text()
    assert file.read_text().endswith("- image: sealed-gateway:1.0.0\n")


def test_both_stages_of_the_image_are_pinned_alike(deploy: Path, registry: tuple[type[Registry], str]) -> None:
    assert pin(deploy, registry[1]).returncode == 0
    lines = (deploy / DOCKERFILE.name).read_text().splitlines()
    assert len({line.split()[1] for line in lines if line.startswith("FROM")}) == 1
