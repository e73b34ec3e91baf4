"""An identity provider for tests: keys of every kind, and a real HTTP server that publishes them, correctly or not."""

from __future__ import annotations

import base64
import contextlib
import functools
import hmac
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ISSUER = "https://id.example.com"
AUDIENCE = "here"

_MAKERS: Mapping[str, Callable[[], Any]] = {
    "RS256": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "PS256": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ES384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "ES512": lambda: ec.generate_private_key(ec.SECP521R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
    "Ed448": ed448.Ed448PrivateKey.generate,
}


class SigningKey:
    """A key pair of the provider.

    Args:
        key_id: its `kid`, or None.
        algorithm: what it signs with.
        private_key: the key itself; by default a new one.
    """

    def __init__(self, key_id: str | None, algorithm: str = "ES256", private_key: Any = None) -> None:
        self.key_id = key_id
        self.algorithm = "EdDSA" if algorithm == "Ed448" else algorithm
        self.private_key = _MAKERS[algorithm]() if private_key is None else private_key

    def jwk(self, **changes: Any) -> dict[str, Any]:
        """Return the public key as the provider publishes it; a change to None removes a member."""
        kinds: dict[str, Any] = jwt.get_algorithm_by_name(self.algorithm).to_jwk(self.private_key.public_key(), True)
        kinds.pop("key_ops", None)
        members = {**kinds, "use": "sig", "alg": self.algorithm, "kid": self.key_id, **changes}
        return {name: value for name, value in members.items() if value is not None}

    def private_jwk(self) -> dict[str, Any]:
        """Return the key pair as a JWK."""
        members: dict[str, Any] = jwt.get_algorithm_by_name(self.algorithm).to_jwk(self.private_key, True)
        return {**members, "kid": self.key_id, "key_ops": ["sign", "verify"]}

    @property
    def pem(self) -> bytes:
        """The public key as PEM."""
        public: bytes = self.private_key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return public

    def token(self, *, header: Mapping[str, Any] | None = None, **claims: Any) -> str:
        """Sign a token for `AUDIENCE`; a claim with the value None is left out."""
        named = {} if self.key_id is None else {"kid": self.key_id}
        headers = {name: value for name, value in {**named, **(header or {})}.items() if value is not None}
        return jwt.encode(claims_of(**claims), self.private_key, algorithm=self.algorithm, headers=headers)


def claims_of(**claims: Any) -> dict[str, Any]:
    """Return the claims of a good token, with changes; a claim with the value None is left out."""
    given = {"iss": ISSUER, "sub": "ada", "aud": AUDIENCE, "exp": int(time.time()) + 600, **claims}
    return {name: value for name, value in given.items() if value is not None}


def token_of(header: Mapping[str, Any], claims: Mapping[str, Any], sign: Callable[[bytes], bytes]) -> str:
    """Build a token by hand."""
    parts = [_encode(json.dumps(part).encode()) for part in (header, claims)]
    signed = b".".join(parts)
    return b".".join([signed, _encode(sign(signed))]).decode()


def signed(key: SigningKey, header: Mapping[str, Any], claims: Mapping[str, Any]) -> str:
    """Sign exactly these claims. The header names the key beside these members; one with the value None is left out."""
    members = {"alg": key.algorithm, "kid": key.key_id, **header}
    algorithm = jwt.get_algorithm_by_name(key.algorithm)
    return token_of(
        {name: value for name, value in members.items() if value is not None},
        claims,
        lambda text: algorithm.sign(text, key.private_key),
    )


def mac_of(secret: bytes, name: str = "sha256") -> Callable[[bytes], bytes]:
    """Return what signs with a shared secret."""
    return lambda signed: hmac.digest(secret, signed, name)


def _encode(part: bytes) -> bytes:
    return base64.urlsafe_b64encode(part).rstrip(b"=")


@functools.cache
def rsa_key() -> SigningKey:
    """Return one RSA key for all tests, as making one is slow."""
    return SigningKey("rsa", "RS256")


def key_set(*keys: SigningKey | Mapping[str, Any]) -> bytes:
    """Return the document that publishes these keys."""
    entries = [key.jwk() if isinstance(key, SigningKey) else dict(key) for key in keys]
    return json.dumps({"keys": entries}).encode()


Answer = Callable[["Request"], None]


class Request(BaseHTTPRequestHandler):
    """One request to the provider."""

    server: _Server
    form: Mapping[str, str] = {}
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer as the provider is set to."""
        self.close_connection = True
        with self.server.counted:
            self.server.requests += 1
            self.server.counted.notify_all()
        self.server.seen = dict(self.headers.items())
        with contextlib.suppress(OSError):  # a client that gives up is part of the tests
            self.server.answer(self)

    def do_POST(self) -> None:
        """Read the form, and answer in the same way."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.form = dict(parse_qsl(body, strict_parsing=True))
        self.do_GET()

    def reply(self, status: int, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()) -> None:
        """Send a whole answer."""
        self.send_response(status)
        for name, value in [*headers, ("Content-Length", str(len(body)))]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the `Date` of an answer."""
        return super().date_time_string((timestamp or time.time()) + self.server.ahead_seconds)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    requests = 0
    ahead_seconds = 0.0
    seen: Mapping[str, str] = {}
    answer: Answer

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.counted = threading.Condition()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that give up are part of the tests."""


class IdentityProvider:
    """A context manager: the server runs inside.

    Args:
        keys: what it publishes at first.
        tls: for https.
    """

    def __init__(self, *keys: SigningKey, tls: ssl.SSLContext | None = None) -> None:
        self._server = _Server()
        self._scheme = "http"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
            self._scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.stopping = threading.Event()
        self._left = threading.Event()
        self.publish(*keys)

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The URL of the keys."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}/keys"

    @property
    def requests(self) -> int:
        """The number of requests."""
        return self._server.requests

    @property
    def seen(self) -> Mapping[str, str]:
        """The headers of the last request."""
        return self._server.seen

    def wait_for_request(self, number: int, seconds: float = 20.0) -> None:
        """Wait for this many requests; the time limit only ends a test that has failed."""
        with self._server.counted:
            assert self._server.counted.wait_for(lambda: self._server.requests >= number, seconds)

    def wait_for_leaving(self, seconds: float = 20.0) -> None:
        """Wait until a client has left while `drip` sends; the time limit only ends a test that has failed."""
        assert self._left.wait(seconds)

    def set_clock(self, ahead_seconds: float) -> None:
        """Set its clock ahead of the system's, or behind if negative."""
        self._server.ahead_seconds = ahead_seconds

    def publish(self, *keys: SigningKey | Mapping[str, Any]) -> None:
        """Publish these keys from now on."""
        self.send(key_set(*keys))

    def send(self, body: bytes, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Answer like this from now on."""
        self.answer(lambda request: request.reply(status, body, headers))

    def answer(self, answer: Answer) -> None:
        """Answer like this from now on."""
        self._server.answer = answer

    def hang(self) -> None:
        """Accept each request and stay silent from now on."""

        def answer(_request: Request) -> None:
            self.stopping.wait()

        self.answer(answer)

    def hold_back(self, *keys: SigningKey) -> Callable[[], None]:
        """Accept each request and stay silent until the returned function is called; then publish these keys."""
        may_answer = threading.Event()

        def answer(request: Request) -> None:
            may_answer.wait(20)
            request.reply(200, key_set(*keys))

        self.answer(answer)
        return may_answer.set

    def drip(self, *, in_head: bool) -> None:
        """Send a byte now and then from now on, until the client leaves."""
        self._left.clear()

        def answer(request: Request) -> None:
            try:
                request.wfile.write(b"HTTP/1.1 200 OK\r\n" + (b"X-Long: " if in_head else b"\r\n"))
                while not self.stopping.wait(0.02):
                    request.wfile.write(b" ")
            except OSError:
                self._left.set()
                raise

        self.answer(answer)
