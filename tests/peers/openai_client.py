"""Talks to an agent or a flow with OpenAI's official client. Usage: openai_client.py URL [MODEL], of the model `peer`."""

import asyncio
import sys

import openai
from openai import AsyncOpenAI, OpenAI

BASE = sys.argv[1] + "/v1"
MODEL = sys.argv[2] if len(sys.argv) > 2 else "peer"
# No second tries: an error is to be seen as it is.
client = OpenAI(base_url=BASE, api_key="unused", max_retries=0)


def user(text):
    return {"role": "user", "content": text}


def raises(error, **request):
    try:
        client.chat.completions.create(**{"model": MODEL, "messages": [user("hi")], **request})
    except error as found:
        return found
    raise AssertionError(f"{error.__name__} was not raised")


def check_models():
    models = client.models.list().data
    assert [model.id for model in models] == [MODEL], models
    assert client.models.retrieve(MODEL) == models[0]
    try:
        client.models.retrieve("nothing")
    except openai.NotFoundError as error:
        assert error.code == "model_not_found" and error.param == "model", error.body
    else:
        raise AssertionError("a model that is not there was found")


def check_completion():
    answer = client.chat.completions.create(model=MODEL, messages=[user("hello there")], temperature=0, max_tokens=50)
    assert answer.object == "chat.completion" and answer.model == MODEL, answer
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
    answer = client.chat.completions.create(model=MODEL, messages=conversation)
    assert answer.choices[0].message.content == "42", answer
    answer = client.chat.completions.create(model=MODEL, messages=[user("/prompt")])
    assert answer.choices[0].message.content == "be brief", answer


def check_stream():
    chunks = list(client.chat.completions.create(model=MODEL, messages=[user("hello there")], stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == "echo: hello there", chunks
    assert len(chunks) > 3 and len({chunk.id for chunk in chunks}) == 1, chunks
    assert chunks[0].choices[0].delta.role == "assistant", chunks[0]
    assert chunks[-1].choices[0].finish_reason == "stop", chunks[-1]

    request = {"model": MODEL, "messages": [user("hello")], "stream_options": {"include_usage": True}}
    with client.chat.completions.stream(**request) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        whole = stream.get_final_completion()
    assert "".join(deltas) == whole.choices[0].message.content == "echo: hello", whole


def check_responses():
    answer = client.responses.create(model=MODEL, input="hello there", instructions="be kind", max_output_tokens=50)
    assert answer.status == "completed" and answer.output_text == "echo: hello there", answer
    assert answer.id.startswith("resp_") and answer.usage.total_tokens > 0, answer

    conversation = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "input_text", "text": "add"}]},
        {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "42"},
    ]
    assert client.responses.create(model=MODEL, input=conversation).output_text == "42"
    # What a client got is part of what it sends next.
    again = [*answer.output, {"role": "user", "content": "once more"}]
    assert client.responses.create(model=MODEL, input=again, store=False).output_text == "echo: once more"

    kinds = [event.type for event in client.responses.create(model=MODEL, input="hello there", stream=True)]
    deltas = kinds.count("response.output_text.delta")
    assert deltas > 1 and kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    with client.responses.stream(model=MODEL, input="hello there") as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        whole = stream.get_final_response()
    assert text == whole.output_text == "echo: hello there", whole

    if answer.store:
        # An agent: what it answered can be continued, and its tools are items that a client need not run.
        further = client.responses.create(model=MODEL, input="and on", previous_response_id=whole.id)
        assert further.output_text == "echo: and on" and further.previous_response_id == whole.id, further
        called = client.responses.create(model=MODEL, input="/tool nothing {}")
        assert [item.type for item in called.output] == ["mcp_call", "message"], called
        assert called.output[0].name == "nothing" and called.output[0].status == "failed", called
    try:
        client.responses.retrieve(answer.id)
    except openai.NotFoundError as error:
        assert "previous_response_id" in error.message, error
    else:
        raise AssertionError("a response was read by its id")
    for refused in ({"previous_response_id": "resp_0"}, {"background": True}):
        try:
            client.responses.create(model=MODEL, input="hi", **refused)
        except openai.BadRequestError as error:
            assert error.param == next(iter(refused)), error
        else:
            raise AssertionError(f"{refused} was taken")


def check_errors():
    missing = raises(openai.NotFoundError, model="gpt")
    assert missing.code == "model_not_found" and "unknown model `gpt`" in missing.message, missing
    assert raises(openai.BadRequestError, messages=[]).param == "messages"
    assert raises(openai.BadRequestError, n=2).type == "invalid_request_error"
    assert raises(openai.APIStatusError, messages=[user("x" * (1 << 20))]).status_code == 413


async def check_async():
    async with AsyncOpenAI(base_url=BASE, api_key="unused", max_retries=0) as later:
        stream = await later.chat.completions.create(model=MODEL, messages=[user("hello")], stream=True)
        chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "echo: hello", chunks


check_models()
check_completion()
check_stream()
check_responses()
check_errors()
asyncio.run(check_async())
print("done")
