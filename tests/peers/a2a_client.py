"""Talks to an agent with the official A2A client. Usage: a2a_client.py URL, of an agent with the tool `hang`."""

import asyncio
import sys

import httpx
from a2a.client import ClientConfig, ClientFactory, create_client
from a2a.client.card_resolver import A2ACardResolver
from a2a.types import (
    AgentCard,
    AgentInterface,
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

URL = sys.argv[1]


def request(text, context="", task=""):
    message = Message(message_id="m", role=Role.ROLE_USER, context_id=context, task_id=task, parts=[Part(text=text)])
    return SendMessageRequest(message=message)


def text_of(task):
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


async def raises(error, awaitable):
    try:
        await awaitable
    except error as found:
        return found
    raise AssertionError(f"{error.__name__} was not raised")


async def first(events):
    async for event in events:
        return event


async def check_card():
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, URL).get_agent_card()
    assert card.name == "peer", card
    assert card.capabilities.streaming, card
    versions = [(interface.protocol_binding, interface.protocol_version) for interface in card.supported_interfaces]
    assert versions == [("JSONRPC", "1.0"), ("JSONRPC", "0.3")], versions
    assert all(interface.url == URL + "/" for interface in card.supported_interfaces), card
    return card


async def converse(client):
    """What every version of the protocol can do."""
    events = [event async for event in client.send_message(request("hello there"))]
    task = events[0].task
    assert task.id and task.context_id, events
    text = text_of(task)
    for event in events[1:-1]:
        assert event.artifact_update.append == bool(text), event
        text += "".join(part.text for part in event.artifact_update.artifact.parts)
    assert text == "echo: hello there", events
    assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED, events[-1]

    shown = await client.get_task(GetTaskRequest(id=task.id))
    assert shown.status.state == TaskState.TASK_STATE_COMPLETED, shown
    assert text_of(shown) == text and shown.history[0].parts[0].text == "hello there", shown
    assert shown.context_id == task.context_id, shown

    await raises(TaskNotFoundError, client.get_task(GetTaskRequest(id="nothing")))
    await raises(TaskNotCancelableError, client.cancel_task(CancelTaskRequest(id=task.id)))
    await raises(UnsupportedOperationError, first(client.send_message(request("on", task=task.id))))


async def cancel(client):
    """A turn whose tool never answers, stopped from outside while its stream is open."""
    stream = client.send_message(request("/tool hang {}"))
    task = (await anext(stream)).task
    followed = client.subscribe(SubscribeToTaskRequest(id=task.id))
    assert (await anext(followed)).task.status.state == TaskState.TASK_STATE_WORKING
    canceled = await client.cancel_task(CancelTaskRequest(id=task.id))
    assert canceled.status.state == TaskState.TASK_STATE_CANCELED, canceled
    for events in (stream, followed):
        last = [event async for event in events][-1]
        assert last.status_update.status.state == TaskState.TASK_STATE_CANCELED, last


async def main():
    card = await check_card()

    client = await create_client(URL)
    await converse(client)
    await cancel(client)

    waiting = await create_client(URL, ClientConfig(streaming=False))
    task = (await first(waiting.send_message(request("in one piece", context="here")))).task
    assert task.status.state == TaskState.TASK_STATE_COMPLETED and task.context_id == "here", task
    assert text_of(task) == "echo: in one piece", task

    polling = await create_client(URL, ClientConfig(streaming=False, polling=True))
    task = (await first(polling.send_message(request("/tool hang {}")))).task
    assert task.status.state == TaskState.TASK_STATE_WORKING, task
    await polling.cancel_task(CancelTaskRequest(id=task.id))

    legacy = AgentCard()
    legacy.CopyFrom(card)
    del legacy.supported_interfaces[:]
    legacy.supported_interfaces.append(
        AgentInterface(url=URL + "/", protocol_binding="JSONRPC", protocol_version="0.3")
    )
    old = ClientFactory(ClientConfig()).create(legacy)
    await converse(old)
    await cancel(old)

    for each in (client, waiting, polling, old):
        await each.close()


asyncio.run(main())
print("done")
