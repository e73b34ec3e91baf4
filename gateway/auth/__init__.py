"""Identifies callers: turns an `Authorization` header into a principal. The only package that knows JSON Web Tokens."""

from __future__ import annotations

from gateway.auth.bind import check_bind
from gateway.auth.inspection import inspect_exchange, inspect_provider
from gateway.auth.keys import SharedSecret
from gateway.auth.metadata import ResourceMetadata
from gateway.auth.providers import read_key_file
from gateway.auth.verifier import AnonymousVerifier, TokenVerifier, VerifiedToken, Verifier, make_verifier

__all__ = [
    "AnonymousVerifier",
    "ResourceMetadata",
    "SharedSecret",
    "TokenVerifier",
    "VerifiedToken",
    "Verifier",
    "check_bind",
    "inspect_exchange",
    "inspect_provider",
    "make_verifier",
    "read_key_file",
]
