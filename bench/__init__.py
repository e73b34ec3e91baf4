"""The benchmark: our server and its peers under the same load, in one run (`make bench`).

It speaks only the wire; `bench.tools` alone uses the authoring API, as the tools of any user would.
"""
