"""Load against a running cluster. Speaks only the wire: imports neither `gateway` nor `workers`."""
