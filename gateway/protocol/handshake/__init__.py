"""Pure: the parts that all handshake wires share: sessions, requests and results of 2025-11-25."""
