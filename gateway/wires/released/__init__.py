"""The 2026-07-28 wire, which has no handshake."""
