"""What a process is made of, and what it does from its start to its end."""
