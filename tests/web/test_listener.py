"""The listening socket, made before anything else."""

from __future__ import annotations

import socket

import pytest

from gateway.errors import ConfigurationError
from gateway.web.listener import inherit, listen


def test_connections_wait_until_somebody_accepts_them() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()) as client:
        accepted, _ = listener.accept()
        with accepted:
            client.sendall(b"x")
            assert accepted.recv(1) == b"x"


@pytest.mark.parametrize(("host", "reached"), [("::", True), ("0::0", True), ("::1", False)])
def test_only_the_address_of_all_addresses_takes_ipv4_too(host: str, reached: bool) -> None:
    with listen(host, 0) as listener:
        port = listener.getsockname()[1]
        socket.create_connection(("::1", port), timeout=20).close()
        with socket.socket() as client:
            assert (client.connect_ex(("127.0.0.1", port)) == 0) == reached


def test_a_port_in_use_is_reported_in_one_line_with_the_way_out() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError) as caught:
            listen("127.0.0.1", port)
    reason = f"cannot listen on 127.0.0.1:{port}: port {port} is already in use"
    assert str(caught.value) == f"{reason}; choose another address with --host or --port"


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("192.0.2.1", "Cannot assign requested address"),
        ("a..b", "not a valid host name"),
        ("x" * 64, "not a valid host name"),
    ],
)
def test_an_address_of_another_machine_and_no_address_at_all_are_reported_in_one_line(host: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        listen(host, 0)
    assert str(caught.value).isprintable()


def test_a_socket_of_the_parent_process_is_taken_over() -> None:
    with listen("127.0.0.1", 0) as listener:
        inherited = inherit(listener.fileno())
        assert inherited.getsockname() == listener.getsockname()
        inherited.detach()


def test_a_descriptor_that_is_not_a_tcp_socket_is_refused() -> None:
    left, right = socket.socketpair()
    with left, right:
        for descriptor in (-1, 0, 999, left.fileno()):
            with pytest.raises(ConfigurationError, match=f"--fd {descriptor} is not a TCP socket"):
                inherit(descriptor)
        left.send(b"still open")
