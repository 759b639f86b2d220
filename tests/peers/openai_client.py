"""Talks to an agent or a flow with OpenAI's official client. Usage: openai_client.py URL, of the model `peer`."""

import asyncio
import sys

import openai
from openai import AsyncOpenAI, OpenAI

BASE = sys.argv[1] + "/v1"
# No second tries: an error is to be seen as it is.
client = OpenAI(base_url=BASE, api_key="unused", max_retries=0)


def user(text):
    return {"role": "user", "content": text}


def raises(error, **request):
    try:
        client.chat.completions.create(**{"model": "peer", "messages": [user("hi")], **request})
    except error as found:
        return found
    raise AssertionError(f"{error.__name__} was not raised")


def check_models():
    models = client.models.list().data
    assert [model.id for model in models] == ["peer"], models
    assert client.models.retrieve("peer") == models[0]
    try:
        client.models.retrieve("nothing")
    except openai.NotFoundError as error:
        assert error.code == "model_not_found" and error.param == "model", error.body
    else:
        raise AssertionError("a model that is not there was found")


def check_completion():
    answer = client.chat.completions.create(model="peer", messages=[user("hello there")], temperature=0, max_tokens=50)
    assert answer.object == "chat.completion" and answer.model == "peer", answer
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.finish_reason == "stop", answer
    assert choice.message.content == "echo: hello there", answer

    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    conversation = [
        {"role": "system", "content": "be brief"},
        user([{"type": "text", "text": "add"}]),
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "42"},
    ]
    answer = client.chat.completions.create(model="peer", messages=conversation)
    assert answer.choices[0].message.content == "42", answer
    answer = client.chat.completions.create(model="peer", messages=[user("/prompt")])
    assert answer.choices[0].message.content == "be brief", answer


def check_stream():
    chunks = list(client.chat.completions.create(model="peer", messages=[user("hello there")], stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == "echo: hello there", chunks
    assert len(chunks) > 3 and len({chunk.id for chunk in chunks}) == 1, chunks
    assert chunks[0].choices[0].delta.role == "assistant", chunks[0]
    assert chunks[-1].choices[0].finish_reason == "stop", chunks[-1]

    request = {"model": "peer", "messages": [user("hello")], "stream_options": {"include_usage": True}}
    with client.chat.completions.stream(**request) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        whole = stream.get_final_completion()
    assert "".join(deltas) == whole.choices[0].message.content == "echo: hello", whole


def check_errors():
    missing = raises(openai.NotFoundError, model="gpt")
    assert missing.code == "model_not_found" and "known models: peer" in missing.message, missing
    assert raises(openai.BadRequestError, messages=[]).param == "messages"
    assert raises(openai.BadRequestError, n=2).type == "invalid_request_error"
    assert raises(openai.APIStatusError, messages=[user("x" * (1 << 20))]).status_code == 413


async def check_async():
    async with AsyncOpenAI(base_url=BASE, api_key="unused", max_retries=0) as later:
        stream = await later.chat.completions.create(model="peer", messages=[user("hello")], stream=True)
        chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "echo: hello", chunks


check_models()
check_completion()
check_stream()
check_errors()
asyncio.run(check_async())
print("done")
