"""The protocol versions that are served, each a wire: one request from its bytes to its reply."""
