"""The draft wire, with a handshake and multi round-trip requests."""
