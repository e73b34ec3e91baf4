"""Questions, the forms that they show, and what the answers become."""
