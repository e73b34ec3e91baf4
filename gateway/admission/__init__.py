"""How much one caller may take of a replica. Each replica counts for itself; nothing is shared."""
