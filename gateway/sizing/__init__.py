"""How many replicas, workers and Redis servers a number of users needs."""
