"""Runs: tasks that write a log, and the logs that clients, stores and telemetry read."""
