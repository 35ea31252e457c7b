"""Placing priced items on slots at the least load distance: the solver that MILP and ALBIC share. Pure."""

from headgate.planners.allocation.problem import Problem, Score, Solution
from headgate.planners.allocation.solver import solve

__all__ = ["Problem", "Score", "Solution", "solve"]
