"""The benchmark: our server and its peers under the same load, in one run (`make bench`).

It speaks only the wire. Only `bench.tools` uses the authoring API, as any user's tools would.
"""
