"""Benchmarks: each figure beside its raw limit, measured in the same run. `make bench` runs them."""
