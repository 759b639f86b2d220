"""Sends a case with AWS's client, as its reference says:
https://boto3.amazonaws.com/v1/documentation/api/latest/reference/services/bedrock-runtime/client/converse_stream.html."""

import base64
import copy
import json
import os

import boto3
from botocore.config import Config
from botocore.eventstream import ChecksumMismatch
from botocore.exceptions import ClientError, EventStreamError, HTTPClientError

from outcome import Failure, choice_of, entries, failure, instructions, json_words, media_of, outcome, result_of

POINTS = {"5m": {"type": "default"}, "1h": {"type": "default", "ttl": "1h"}}
# Failures within a stream; all others are of the provider.
WITHIN = {"validationException": "BadRequest", "modelTimeoutException": "Timeout"}
VARIABLES = [
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ENDPOINT_URL_STS", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
]
_known = {}


def client(lane, base):
    variables = lane["variables"]
    for name in VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(variables)
    token = variables.get("AWS_BEARER_TOKEN_BEDROCK")
    # A session keeps its credentials, and reads the model of the service once.
    session = _known.setdefault(json.dumps(variables), boto3.Session(region_name=lane["region"]))
    # It sends a token over https alone: what sends for it does so without.
    url = base.replace("http://", "https://") if token else base
    found = session.client(
        "bedrock-runtime", endpoint_url=url, region_name=lane["region"],
        config=Config(retries={"total_max_attempts": 1}),
    )
    if token:
        found.meta.events.register("before-send", send_without_tls)
    return found


def send_without_tls(request, **_):
    request.url = request.url.replace("https://", "http://")


def ask(lane, base, request):
    try:
        return read(client(lane, base).converse_stream(**arguments(lane, request))["stream"])
    except EventStreamError as error:
        return Failure(WITHIN.get(error.response["Error"]["Code"], "Unavailable")).said()
    except ClientError as error:
        found = error.response
        headers = found["ResponseMetadata"]["HTTPHeaders"]
        return failure(found["ResponseMetadata"]["HTTPStatusCode"], found["Error"]["Code"], headers)
    except ChecksumMismatch:
        return Failure("Malformed").said()
    except HTTPClientError:
        return Failure("Unavailable").said()


def read(stream):
    text, calls, thoughts, end, usage = "", {}, {}, None, None
    for event in stream:
        [(kind, value)] = event.items()
        if kind == "contentBlockStart" and "toolUse" in value["start"]:
            tool = value["start"]["toolUse"]
            calls[value["contentBlockIndex"]] = {"id": tool["toolUseId"], "name": tool["name"], "arguments": ""}
        elif kind == "contentBlockDelta":
            index, delta = value["contentBlockIndex"], value["delta"]
            text += delta.get("text", "")
            if "toolUse" in delta:
                calls[index]["arguments"] += delta["toolUse"]["input"]
            for name, piece in delta.get("reasoningContent", {}).items():
                block = thoughts.setdefault(index, {})
                block[name] = block[name] + piece if name in block else piece
        elif kind == "messageStop":
            end = value["stopReason"]
        elif kind == "metadata":
            usage = value["usage"]
    if end in ("guardrail_intervened", "content_filtered"):
        return Failure("Refused").said()
    if end is None:
        return Failure("Unavailable").said()
    calls = [call | {"arguments": json.loads(call["arguments"] or "{}")} for call in calls.values()]
    read, write = usage.get("cacheReadInputTokens", 0), usage.get("cacheWriteInputTokens", 0)
    counts = {
        "input": usage["inputTokens"] + read + write, "cacheRead": read, "cacheWrite": write, "output": usage["outputTokens"],
        "reasoning": 0,
    }
    thoughts = [{"reasoningContent": content(block)} for block in thoughts.values()]
    return outcome(text, calls, end == "max_tokens", counts, {"reasoning": thoughts} if thoughts else None)


def content(block):
    if "redactedContent" in block:
        return {"redactedContent": base64.b64encode(block["redactedContent"]).decode()}
    return {"reasoningText": block}


def arguments(lane, request):
    config = request["config"]
    point = [{"cachePoint": POINTS[config["cache"]]}] if "cache" in config else []
    found = {"modelId": lane["model"], "messages": messages(request)}
    names = {"temperature": "temperature", "topP": "topP", "maxOutputTokens": "maxTokens", "stopSequences": "stopSequences"}
    if inference := {theirs: config[ours] for ours, theirs in names.items() if ours in config}:
        found["inferenceConfig"] = inference
    if "topK" in config:
        found["additionalModelRequestFields"] = {"top_k": config["topK"]}
    choice = choice_of(request)
    words = None if request["output"] is None else json_words(request["output"])
    if schema := request["output"]:
        definition = {"name": "output", "schema": json.dumps(schema, separators=(",", ":"))}
        found["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": definition}}}
    # The API has no setting for no call at all.
    none = "Do not call a tool." if choice == "none" else None
    if system := instructions(request, words, none):
        found["system"] = [{"text": system}, *point]
    found["messages"][-1]["content"] += point
    if tools := tools_of(request):
        found["toolConfig"] = {"tools": tools + point}
        match choice:
            case "required":
                found["toolConfig"]["toolChoice"] = {"any": {}}
            case {"tool": name}:
                found["toolConfig"]["toolChoice"] = {"tool": {"name": name}}
    return found


def tools_of(request):
    tools = [
        {"toolSpec": {"name": tool["name"], "description": tool["description"], "inputSchema": {"json": tool["input_schema"]}}}
        for tool in request["tools"]
    ]
    # Calls in the conversation need a tool of their name.
    known = {tool["name"] for tool in request["tools"]}
    called = {message["call"]["name"] for message in request["messages"] if "call" in message}
    for name in sorted(called - known):
        tools.append({"toolSpec": {"name": name, "inputSchema": {"json": {"type": "object"}}}})
    return tools


def messages(request):
    found = []
    for kind, entry in entries(request):
        if kind == "user":
            found.append({"role": "user", "content": [part_of(part) for part in entry]})
        elif kind == "results":
            found.append({"role": "user", "content": [result(value) for value in entry]})
        else:
            blocks = [block for call in entry["calls"] for block in call.get("thought", {}).get("reasoning", [])]
            blocks = [as_bytes(block) for block in copy.deepcopy(blocks)]
            if entry["text"]:
                blocks.append({"text": entry["text"]})
            for call in entry["calls"]:
                blocks.append({"toolUse": {"toolUseId": call["id"], "name": call["name"], "input": call["arguments"]}})
            found.append({"role": "assistant", "content": blocks})
    return found


def as_bytes(block):
    content = block["reasoningContent"]
    if "redactedContent" in content:
        content["redactedContent"] = base64.b64decode(content["redactedContent"])
    return block


def result(value):
    text, is_failed = result_of(value)
    status = "error" if is_failed else "success"
    return {"toolResult": {"toolUseId": value["id"], "content": [{"text": text}], "status": status}}


def part_of(part):
    if "text" in part:
        return {"text": part["text"]}
    type, data = media_of(part)
    kind, format = type.split("/")
    source = {"format": format, "source": {"bytes": base64.b64decode(data)}}
    return {"image": source} if kind == "image" else {"document": source | {"name": "document-1"}}
