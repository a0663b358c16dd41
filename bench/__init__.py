"""Benchmarks: every figure beside peers and hand-written floors of the same run, since only ratios travel."""
