"""What the wires with a handshake share."""
