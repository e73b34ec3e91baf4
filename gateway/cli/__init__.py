"""The command `gateway`, and all that only its `dev` needs."""
