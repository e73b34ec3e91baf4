"""Pure: the draft wire: a handshake wire, and the proposals that it speaks as they were written."""
