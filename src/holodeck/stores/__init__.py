"""Durable stores: one SQLite file for one machine, PostgreSQL for more. Each serves the ports of sessions and runs."""
