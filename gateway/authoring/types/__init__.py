"""Annotated types of tools and answers: their schemas, and how their values are read and recorded."""
