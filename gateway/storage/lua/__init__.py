"""The Lua scripts that change what is stored, each as one step."""
