"""The playground: a page on which people call tools and watch calls move between replicas."""
