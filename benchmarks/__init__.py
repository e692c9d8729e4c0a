"""What Pilothouse costs, measured: `python -m benchmarks [names]`. Every benchmark is one file with a `run`."""
