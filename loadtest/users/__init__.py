"""The simulated users, one module per kind. Each checks the content of its answers: a wrong one is a failure."""
