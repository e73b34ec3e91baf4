"""URIs of resources: their canonical form, how lenient servers may read them, and templates of them."""
