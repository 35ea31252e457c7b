"""Level eight slots under a hot key, with nothing but arrays: no Spark, no files, no server."""

import numpy as np

import headgate as hg

users = [f"user-{number}" for number in range(2_000)]
cost = 1_000 / np.arange(1, len(users) + 1) ** 0.8  # seconds of work per key: a few users cause most of it
snapshot = hg.Snapshot.of_keys(users, cost, state_bytes=50 * cost)
plan = hg.Mixed().plan(snapshot, hg.Assignment.hashed(slots=8), hg.Limits(theta_max=0.05))

before, after = plan.figures.before, plan.figures.after
print(f"fullest slot: {before.max_over_mean:.2f} -> {after.max_over_mean:.2f} times the mean")
print(f"{len(plan.moves)} keys move, with {plan.figures.migrated_share:.1%} of the state")
for move in plan.moves[:3]:
    print(f"{move.key}: slot {move.source} -> {move.target}, because {move.reason}")
