"""Pure: what makes a half-finished call safe to hand to the client (no I/O, no clock, no randomness of its own)."""
