"""What is served, of whomever: the tools of one file and those of upstreams, as one list with names."""
