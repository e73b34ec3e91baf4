"""TLS to a server: which authorities are trusted, and the certificate that the gateway presents."""

from __future__ import annotations

import functools
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

_Versions = tuple[tuple[int, int, int], ...]

_NO_PASSWORD: Final = ""
"""For a key that is encrypted: OpenSSL would ask for its password on the terminal."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificates for the connection to a server, as files in PEM format.

    Attributes:
        ca: the authorities to trust instead of the system's; None trusts those.
        cert: the certificate of the client with its chain; None presents none.
        key: the key of `cert`; None looks for it in `cert`.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


NO_TLS_FILES: Final = TlsFiles()
"""What the system trusts, without a certificate of the client."""


class TlsContexts:
    """Makes the TLS context of new connections; makes it again whenever one of the files has changed.

    Files that cannot be used raise `ValueError`, which says which and why.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._versions = self._read_versions()
        self._context = _new_context(files)

    def context(self) -> ssl.SSLContext:
        """Return the context. The last good one stays in use while the files cannot be read."""
        versions = self._read_versions()
        if versions != self._versions:
            try:
                self._context = _new_context(self._files)
            except ValueError as error:
                log.warning(
                    "changed TLS files cannot be used; the current ones stay in use",
                    extra={"reason": str(error)},
                )
            self._versions = versions
        return self._context

    def _read_versions(self) -> _Versions:
        paths = (self._files.ca or _authorities_of_system(), self._files.cert, self._files.key)
        return tuple(_version(path) for path in paths if path is not None)


@functools.cache
def contexts_of_system() -> TlsContexts:
    """Return what makes contexts that trust what the system trusts. To read its authorities takes milliseconds."""
    return TlsContexts(NO_TLS_FILES)


def contexts_of(files: TlsFiles) -> TlsContexts:
    """Return what makes contexts with these files; see `TlsContexts` for errors."""
    return contexts_of_system() if files == NO_TLS_FILES else TlsContexts(files)


def _authorities_of_system() -> Path | None:
    """Return the file that OpenSSL reads authorities from, which `SSL_CERT_FILE` may name."""
    file = ssl.get_default_verify_paths().cafile
    return Path(file) if file else None


def _version(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_ino, status.st_size)


def _new_context(files: TlsFiles) -> ssl.SSLContext:
    if files.key is not None and files.cert is None:
        raise ValueError("a TLS key needs a certificate; set cert too")
    try:
        context = ssl.create_default_context(cafile=files.ca)
    except OSError as error:  # an SSLError too
        raise ValueError(f"cannot read certificates from {files.ca}: {_reason(error)}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if files.cert is not None:
        try:
            context.load_cert_chain(files.cert, files.key, lambda: _NO_PASSWORD)
        except OSError as error:
            key = files.key or files.cert
            raise ValueError(f"cannot use the certificate {files.cert} with the key {key}: {_reason(error)}") from None
    return context


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "not a PEM file with what is needed"
    return error.strerror or type(error).__name__
