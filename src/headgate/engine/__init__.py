"""The engine: the one package that runs jobs on Spark."""
