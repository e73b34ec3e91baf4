"""What any part of a process may use: it depends on nothing but the errors."""
