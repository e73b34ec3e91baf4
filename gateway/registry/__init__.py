"""The list of everything that is served: tools of a file, and those of upstreams, under one kind of name."""
