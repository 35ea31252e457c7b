"""Workloads of the papers, for benchmarks, demonstrations and tests. Pure."""

from headgate.workloads.alternating import AlternatingStream
from headgate.workloads.clusters import Cluster, cluster, drift, node_loads
from headgate.workloads.jobs import Flow, JobOperator, RandomJob, random_job
from headgate.workloads.lending import lending_job, lending_windows
from headgate.workloads.random_jobs import random_topology
from headgate.workloads.zipf import ZipfStream, zipf_shares

__all__ = [
    "AlternatingStream",
    "Cluster",
    "Flow",
    "JobOperator",
    "RandomJob",
    "ZipfStream",
    "cluster",
    "drift",
    "lending_job",
    "lending_windows",
    "node_loads",
    "random_job",
    "random_topology",
    "zipf_shares",
]
