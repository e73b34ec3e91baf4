"""Pure: makes a half-finished call safe to hand to the client. No I/O, no clock, no randomness of its own."""
