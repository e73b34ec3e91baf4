"""The 2026-07-28 wire, without a handshake."""
