"""Pure: what a stored task is, whatever wire reads it and wherever it is kept."""
