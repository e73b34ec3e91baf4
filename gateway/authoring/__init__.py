"""The authoring API: decorators, `Context`, content blocks and the testing helper."""
