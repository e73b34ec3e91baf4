"""The servers that ours is compared with; a peer with further dependencies has its own virtual environment."""
