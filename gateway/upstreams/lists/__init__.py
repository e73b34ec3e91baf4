"""What upstreams list: tools, prompts and resources, for whom, and for how long."""
