"""Runs as tasks (the extension `io.modelcontextprotocol/tasks`): the client polls their status."""

from datetime import datetime
from typing import Any

from holodeck.wires.reply import time_text

POLL_MILLISECONDS = 2_000
WORKING, COMPLETED, CANCELLED = "working", "completed", "cancelled"


def task(
    *, task_id: str, status: str, created_at: datetime, updated_at: datetime, ttl_seconds: float
) -> dict[str, Any]:
    return {
        "taskId": task_id,
        "status": status,
        "createdAt": time_text(created_at),
        "lastUpdatedAt": time_text(updated_at),
        "ttlMs": max(1, round(ttl_seconds * 1000)),
        "pollIntervalMs": POLL_MILLISECONDS,
    }
