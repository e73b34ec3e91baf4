"""Pure: the draft wire, a handshake wire with the proposals as they were first written."""
