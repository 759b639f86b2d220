"""An agent in FastAPI: POST /chat answers as JSON or as a stream of events, and GET /healthz says that it runs."""

import asyncio
import json
import os
import signal
import sys
from collections import defaultdict
from uuid import uuid4

import uvicorn
from fastapi import FastAPI, Header, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

app = FastAPI()
# Messages by caller and conversation. They are in this Pod alone: with several replicas keep them in a database.
conversations = defaultdict(list)


class Message(BaseModel):
    message: str
    conversation_id: str | None = None


def model(messages, user, trace):
    """Stands for a model, and returns its words."""
    message, *before = reversed(messages)
    if message == "who am I":
        return f"You are {user or 'unknown'}.".split(" ")
    if message == "which trace":
        return f"The trace is {trace.split('-')[1] if trace else 'unknown'}.".split(" ")
    earlier = f" Before that you said: {before[0]}." if before else ""
    return f"{os.environ['CORAIL_AGENT_NAME']} heard: {message}.{earlier}".split(" ")


async def spoken(words):
    """Yields the words one by one, each with the space before it."""
    for number, word in enumerate(words):
        await asyncio.sleep(0.05)
        yield word if number == 0 else f" {word}"


@app.get("/healthz")
async def healthz():
    return {}


@app.post("/chat")
async def chat(
    body: Message,
    response: Response,
    accept: str = Header(""),
    x_recif_user: str | None = Header(None),
    traceparent: str | None = Header(None),
):
    conversation = body.conversation_id or str(uuid4())
    messages = conversations[x_recif_user, conversation]
    messages.append(body.message)
    reply = model(messages, x_recif_user, traceparent)
    words = spoken(reply)
    if "text/event-stream" not in accept:
        # What the model used, for budgets and `recif top`: of a real one its own numbers, here words.
        heard = sum(len(message.split()) for message in messages)
        response.headers["x-recif-usage"] = f'in={heard}, out={len(reply)}, model="sample/words", est'
        return {"reply": "".join([word async for word in words]), "conversation_id": conversation}

    async def events():
        async for word in words:
            yield f"data: {json.dumps({'token': word})}\n\n"
        yield f"event: done\ndata: {json.dumps({'conversation_id': conversation})}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


if __name__ == "__main__":
    # uvicorn ends its requests, and then raises the signal once more.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    uvicorn.run(app, host="0.0.0.0", port=int(os.environ.get("CORAIL_PORT", "8000")), access_log=False)
