"""An agent in LangGraph, served by the Agent2Agent protocol. Its graph keeps the conversation of a context."""

import asyncio
import operator
import os
import signal
import sys
from typing import Annotated, TypedDict

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from google.protobuf.json_format import MessageToDict
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import START, StateGraph
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

NAME, TEXT = os.environ["CORAIL_AGENT_NAME"], ["text/plain"]
State = TypedDict("State", {"messages": Annotated[list[str], operator.add]})


async def model(state: State, config):
    """Stands for a model, and writes its words one by one."""
    message, *before = reversed(state["messages"])
    headers = config["configurable"]["headers"]
    text = f"{NAME} heard: {message}." + (f" Before that you said: {before[0]}." if before else "")
    if message == "who am I":
        text = f"You are {headers.get('x-recif-user', 'unknown')}."
    if message == "which trace":
        text = f"The trace is {headers.get('traceparent', '-unknown').split('-')[1]}."
    for number, word in enumerate(text.split(" ")):
        await asyncio.sleep(0.05)
        get_stream_writer()((number > 0, f" {word}" if number else word))


# Conversations are in this Pod alone: with several replicas use a checkpointer with a database.
graph = StateGraph(State).add_node("model", model).add_edge(START, "model").compile(checkpointer=InMemorySaver())


class Executor(AgentExecutor):
    async def execute(self, context, event_queue):
        await event_queue.enqueue_event(new_task_from_user_message(context.message))
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        headers = context.call_context.state["headers"]
        # A conversation belongs to the caller, whom the gateway has signed in.
        thread = {"thread_id": f"{headers.get('x-recif-user', '')}/{context.context_id}", "headers": headers}
        said = {"messages": [context.get_user_input()]}
        async for append, word in graph.astream(said, {"configurable": thread}, stream_mode="custom"):
            await task.add_artifact([new_text_part(word)], artifact_id="reply", append=append)
        await task.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(headers):
    """Returns the card. Its address is the one by which the client came: the gateway's."""
    host, prefix = headers.get("x-forwarded-host", headers["host"]), headers.get("x-forwarded-prefix", "")
    url = f"{headers.get('x-forwarded-proto', 'http')}://{host}{prefix}/"
    served = [AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=version) for version in ("1.0", "0.3")]
    skill = AgentSkill(id="chat", name="Chat", description="Repeats what it hears.", tags=["chat"])
    can = AgentCapabilities(streaming=True)
    return AgentCard(name=NAME, description=skill.description, version="1", supported_interfaces=served, capabilities=can,
                     skills=[skill], default_input_modes=TEXT, default_output_modes=TEXT)  # fmt: skip


handler = DefaultRequestHandler(Executor(), InMemoryTaskStore(), card({"host": "localhost"}))
show = Route("/.well-known/agent-card.json", lambda request: JSONResponse(MessageToDict(card(request.headers))))
# When the server ends, streams have 20 s to end. uvicorn waits for them, and then raises the signal once more.
app = Starlette(routes=[show, *create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True, shutdown_grace_period=20)])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
uvicorn.run(app, host="0.0.0.0", port=int(os.environ.get("CORAIL_PORT", "8000")), access_log=False)
