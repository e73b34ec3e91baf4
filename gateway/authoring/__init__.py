"""What a tool author writes against: decorators, `Context`, content blocks, the registry, the testing helper."""
