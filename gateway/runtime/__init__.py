"""Tools for any part of a process. This package depends only on the errors."""
