"""The only place where time passes: SimPy replicas, pipelines and clients."""
