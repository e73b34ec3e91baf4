"""The authoring API: decorators, `Context`, content blocks, the registry and the testing helper."""
