"""Workloads of the papers, for benchmarks, demonstrations and tests. Pure."""
