"""The draft wire, with a handshake and rounds of questions."""
