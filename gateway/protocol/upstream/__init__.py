"""Pure: the client's side of the protocol, for requests to other MCP servers. Everything they send is untrusted."""
