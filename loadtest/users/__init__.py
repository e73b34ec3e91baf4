"""The simulated users, one module a kind. Each checks the content of what it gets: a wrong answer is a failure."""
