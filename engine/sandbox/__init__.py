"""The place where a notebook's code runs: a shim process per notebook that outlives the server.

Everything here but `client` is standard library only (and `kernel` IPython): the shim must stay small.
"""
