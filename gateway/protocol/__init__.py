"""Pure: the rules of the protocol, without I/O: JSON, JSON-RPC, headers, versions, and a package for each wire."""
