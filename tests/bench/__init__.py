"""Benchmarks: each figure beside its raw limit, measured in the same run on the same machine. `make bench` runs them."""
