"""Counts the cost of requests in numbers that are the same in every run, and guards against their growth.

Times differ from run to run; the numbers of function calls and instructions for a request do not.
"""
