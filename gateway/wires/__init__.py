"""The wires, one for each form of the protocol: they turn the bytes of a request into a reply."""
