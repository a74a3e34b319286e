"""Plays scenarios with the official A2A SDK. Runs in an environment of its own, so it imports nothing of ours.

Scenarios as a JSON list on standard input, one line of JSON out for each: {name, url, binding: version and name,
streaming, asks}. An ask is the parts of a message; the second and later ones go to the task of the one before. The ask
{approved, reason?} answers what that task waits for.
"""

import asyncio
import json
import sys
from typing import Any
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import (
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    Message,
    SendMessageRequest,
    TaskPushNotificationConfig,
)
from google.protobuf.json_format import MessageToDict, ParseDict


async def _play(scenario: dict[str, Any]) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=60) as http:
        card = await A2ACardResolver(http, scenario["url"]).get_agent_card()
        version, _, binding = scenario["binding"].partition(" ")
        kept = [
            each
            for each in card.supported_interfaces
            if (each.protocol_binding, each.protocol_version) == (binding, version)
        ]
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(kept)
        config = ClientConfig(httpx_client=http, streaming=scenario["streaming"], supported_protocol_bindings=[binding])
        client = ClientFactory(config).create(card)
        updates: list[dict[str, Any]] = []
        tasks: list[dict[str, Any]] = []
        for ask in scenario["asks"]:
            task = tasks[-1] if tasks else {}
            parts = _answers(task, ask) if isinstance(ask, dict) else ask
            message = {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": parts, "taskId": task.get("id", "")}
            request = SendMessageRequest(message=ParseDict(message, Message()))
            updates = [MessageToDict(each) async for each in client.send_message(request)]
            task_id = next(each["task"]["id"] for each in updates if "task" in each)
            tasks.append(MessageToDict(await client.get_task(GetTaskRequest(id=task_id))))
        registered = await _registered(client, tasks[-1]["id"])
        return {"updates": updates, "tasks": tasks, "card": card.name, "registered": registered}


async def _registered(client: Client, task_id: str) -> dict[str, Any]:
    config: dict[str, Any] = {"id": "c1", "taskId": task_id, "url": "http://127.0.0.1:9/hook", "token": "t"}
    config["authentication"] = {"scheme": "Bearer", "credentials": "c"}
    await client.create_task_push_notification_config(ParseDict(config, TaskPushNotificationConfig()))
    asked = GetTaskPushNotificationConfigRequest(task_id=task_id, id="c1")
    return MessageToDict(await client.get_task_push_notification_config(asked))


def _answers(task: dict[str, Any], answer: dict[str, Any]) -> list[dict[str, Any]]:
    questions = [part["data"] for part in task["status"]["message"]["parts"] if "data" in part]
    return [{"data": {"interruptId": question["interruptId"], **answer}} for question in questions]


async def main() -> None:
    for scenario in json.loads(sys.stdin.read()):
        sys.stdout.write(json.dumps({"name": scenario["name"], **await _play(scenario)}) + "\n")


asyncio.run(main())
