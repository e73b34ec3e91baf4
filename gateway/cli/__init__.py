"""The command `gateway`, and what only `gateway dev` needs."""
