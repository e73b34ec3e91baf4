"""How many replicas, workers and Redis servers a deployment needs; and how well that is known."""
