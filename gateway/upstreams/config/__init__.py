"""The file of upstreams: how it is read, what its options mean, what is pinned, and what is wrong with it."""
