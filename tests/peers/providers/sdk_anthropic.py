"""Sends a case with Anthropic's clients, as their reference says: https://docs.anthropic.com/en/api/messages."""

import json

import anthropic
import httpx2
from anthropic import Anthropic, AnthropicVertex

from google_account import credentials
from outcome import Failure, choice_of, entries, failure, instructions, json_words, media_of, outcome, result_of

# The version of the API that still takes temperature, top_p and top_k, which the runner's settings have.
VERSION, VERTEX_VERSION = "2023-06-01", "vertex-2023-10-16"
LIVES = {"5m": {"type": "ephemeral"}, "1h": {"type": "ephemeral", "ttl": "1h"}}


def client(lane, base):
    variables = lane["variables"]
    if lane["provider"] == "anthropic":
        key, token = variables.get("ANTHROPIC_API_KEY"), variables.get("ANTHROPIC_AUTH_TOKEN")
        headers = {"anthropic-version": VERSION}
        return Anthropic(base_url=base, api_key=key, auth_token=token, max_retries=0, default_headers=headers)
    return AnthropicVertex(
        base_url=f"{base}/v1", region=lane["region"], project_id="acme", credentials=credentials(lane), max_retries=0
    )


def ask(lane, base, request):
    try:
        with client(lane, base).messages.stream(**arguments(lane, request)) as stream:
            return read(stream.get_final_message())
    except anthropic.APIStatusError as error:
        # Within the stream the status is that of its beginning.
        is_within = error.status_code == 200
        return Failure("Unavailable").said() if is_within else failure(error.status_code, error.type, error.response.headers)
    except json.JSONDecodeError:
        return Failure("Malformed").said()
    except (anthropic.APIError, httpx2.HTTPError):
        return Failure("Unavailable").said()


def read(message):
    if message.stop_reason == "refusal":
        return Failure("Refused").said()
    if message.stop_reason is None:
        return Failure("Unavailable").said()
    text = "".join(block.text for block in message.content if block.type == "text")
    calls = [
        {"id": block.id, "name": block.name, "arguments": block.input} for block in message.content if block.type == "tool_use"
    ]
    thoughts = [block.to_dict() for block in message.content if block.type in ("thinking", "redacted_thinking")]
    usage, details = message.usage, message.usage.output_tokens_details
    read, write = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    counts = {
        "input": usage.input_tokens + read + write,
        "cacheRead": read,
        "cacheWrite": write,
        "output": usage.output_tokens,
        "reasoning": details.thinking_tokens if details else 0,
    }
    return outcome(text, calls, message.stop_reason == "max_tokens", counts, {"blocks": thoughts} if thoughts else None)


def arguments(lane, request):
    config = request["config"]
    found = {"model": lane["model"], "max_tokens": config.get("maxOutputTokens", 8192)}
    names = {"temperature": "temperature", "topP": "top_p", "topK": "top_k", "stopSequences": "stop_sequences"}
    found |= {theirs: config[ours] for ours, theirs in names.items() if ours in config}
    # The client has no arguments for what its own version of the API does not take.
    extra = {name: found.pop(name) for name in ("temperature", "top_p", "top_k") if name in found}
    if lane["provider"] == "anthropic-vertex":
        extra["anthropic_version"] = VERTEX_VERSION
    if extra:
        found["extra_body"] = extra
    life = LIVES.get(config.get("cache"))
    words = None if request["output"] is None else json_words(request["output"])
    if schema := request["output"]:
        found["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    if system := instructions(request, words):
        found["system"] = [{"type": "text", "text": system, "cache_control": life}] if life else system
    found["messages"] = messages(request)
    if life:
        found["messages"][-1]["content"][-1]["cache_control"] = life
    if request["tools"]:
        found["tools"] = [dict(tool) for tool in request["tools"]]
        if life:
            found["tools"][-1]["cache_control"] = life
    match choice_of(request):
        case "none":
            found["tool_choice"] = {"type": "none"}
        case "required":
            found["tool_choice"] = {"type": "any"}
        case {"tool": name}:
            found["tool_choice"] = {"type": "tool", "name": name}
    return found


def messages(request):
    found = []
    for kind, entry in entries(request):
        if kind == "user":
            found.append({"role": "user", "content": [part_of(part) for part in entry]})
        elif kind == "results":
            found.append({"role": "user", "content": [result(value) for value in entry]})
        else:
            blocks = [block for call in entry["calls"] for block in call.get("thought", {}).get("blocks", [])]
            if entry["text"]:
                blocks.append({"type": "text", "text": entry["text"]})
            for call in entry["calls"]:
                blocks.append({"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]})
            found.append({"role": "assistant", "content": blocks})
    return found


def result(value):
    text, is_failed = result_of(value)
    return {"type": "tool_result", "tool_use_id": value["id"], "content": text} | ({"is_error": True} if is_failed else {})


def part_of(part):
    if "text" in part:
        return {"type": "text", "text": part["text"]}
    type, data = media_of(part)
    kind = "document" if type == "application/pdf" else "image"
    return {"type": kind, "source": {"type": "base64", "media_type": type, "data": data}}
