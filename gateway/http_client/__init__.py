"""A client for HTTP/1.1 that trusts no server: addresses, TLS, framing, sizes and times are checked or bounded."""
