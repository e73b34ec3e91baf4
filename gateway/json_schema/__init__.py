"""Pure: JSON Schemas of tools and forms: what checking against one may cost, what is wrong, and what it refers to."""
