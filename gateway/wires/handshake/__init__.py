"""The parts that all handshake wires share."""
