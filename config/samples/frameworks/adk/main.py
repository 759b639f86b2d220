"""An agent in Google's ADK: `to_a2a` serves it by the Agent2Agent protocol."""

import asyncio
import os
import signal
import sys
from contextvars import ContextVar

import uvicorn
from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import BaseAgent
from google.adk.events import Event
from google.genai.types import Content, Part
from sse_starlette.sse import AppStatus
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.middleware.authentication import AuthenticationMiddleware

# traceparent of the request, for models and tools that take part in the trace.
trace = ContextVar("trace", default=None)


class Caller(AuthenticationBackend):
    """The gateway has signed the caller in: sessions, which ADK keeps by user, are the caller's own."""

    async def authenticate(self, conn):
        trace.set(conn.headers.get("traceparent"))
        if user := conn.headers.get("X-Recif-User"):
            return AuthCredentials(["authenticated"]), SimpleUser(user)


def model(name, messages, user):
    """Stands for a model, and returns its words."""
    message, *before = reversed(messages)
    if message == "who am I":
        return f"You are {user}.".split(" ")
    if message == "which trace":
        return f"The trace is {trace.get().split('-')[1] if trace.get() else 'unknown'}.".split(" ")
    earlier = f" Before that you said: {before[0]}." if before else ""
    return f"{name} heard: {message}.{earlier}".split(" ")


class Parrot(BaseAgent):
    async def _run_async_impl(self, ctx):
        said = [event.content for event in ctx.session.events if event.author == "user" and event.content]
        words = model(self.name, ["".join(part.text or "" for part in content.parts) for content in said], ctx.user_id)
        for number, word in enumerate(words):
            await asyncio.sleep(0.05)
            yield self.event(ctx, word if number == 0 else f" {word}", partial=True)
        yield self.event(ctx, " ".join(words), partial=False)

    def event(self, ctx, text, partial):
        content = Content(role="model", parts=[Part(text=text)])
        return Event(invocation_id=ctx.invocation_id, author=self.name, content=content, partial=partial)


if __name__ == "__main__":
    port = int(os.environ.get("CORAIL_PORT", "8000"))
    agent = Parrot(name=os.environ["CORAIL_AGENT_NAME"].replace("-", "_"), description="Repeats what it hears.")
    app = to_a2a(agent, port=port)
    app.add_middleware(AuthenticationMiddleware, backend=Caller())
    # On SIGTERM streams end with their last word. uvicorn waits for them, and then raises the signal once more.
    AppStatus.disable_automatic_graceful_drain()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    uvicorn.run(app, host="0.0.0.0", port=port, access_log=False)
