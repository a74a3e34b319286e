"""Runs as tasks (the extension `io.modelcontextprotocol/tasks`): the client polls their status."""

from datetime import datetime
from typing import Any

POLL_MILLISECONDS = 2_000
WORKING, COMPLETED, CANCELLED = "working", "completed", "cancelled"


def task(
    *, task_id: str, status: str, created_at: datetime, updated_at: datetime, ttl_seconds: float
) -> dict[str, Any]:
    return {
        "taskId": task_id,
        "status": status,
        "createdAt": _time(created_at),
        "lastUpdatedAt": _time(updated_at),
        "ttlMs": max(1, round(ttl_seconds * 1000)),
        "pollIntervalMs": POLL_MILLISECONDS,
    }


def _time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
