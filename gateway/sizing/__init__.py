"""Calculates how many replicas, workers and Redis servers a load needs."""
