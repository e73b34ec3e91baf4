"""Pure: what the wires with a handshake have in common: sessions, requests and results of 2025-11-25."""
