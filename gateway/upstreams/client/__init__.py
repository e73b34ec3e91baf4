"""The clients of upstreams: one for each way to speak to them, and the choice among them."""
