"""Sends a case with OpenAI's client, as its reference says: https://platform.openai.com/docs/api-reference/chat."""

import json

import openai
from openai import AzureOpenAI, OpenAI

from outcome import Failure, choice_of, failure, json_words, media_of, outcome


def client(lane, base):
    variables = lane["variables"]
    key, token = variables.get("AZURE_OPENAI_API_KEY"), variables.get("AZURE_OPENAI_AD_TOKEN")
    if lane["provider"] == "openai":
        return OpenAI(base_url=base, api_key=variables["OPENAI_API_KEY"], max_retries=0)
    if version := lane["settings"].get("apiVersion"):
        keys = {"api_key": key} if key else {"azure_ad_token": token}
        return AzureOpenAI(azure_endpoint=base, api_version=version, max_retries=0, **keys)
    return OpenAI(base_url=f"{base}/openai/v1/", api_key=token, max_retries=0)


def ask(lane, base, request):
    try:
        with client(lane, base).chat.completions.create(**arguments(lane, request)) as stream:
            return read(stream)
    except openai.APIStatusError as error:
        return failure(error.status_code, error.code, error.response.headers)
    except json.JSONDecodeError:
        return Failure("Malformed").said()
    # Reported within the stream, or broken off.
    except openai.APIError:
        return Failure("Unavailable").said()


def read(stream):
    text, calls, end, usage, refused = "", {}, None, None, False
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            refused |= bool(choice.delta.refusal)
            end = choice.finish_reason or end
            for piece in choice.delta.tool_calls or []:
                call = calls.setdefault(piece.index, {"id": "", "name": "", "arguments": ""})
                call["id"] += piece.id or ""
                call["name"] += piece.function.name or ""
                call["arguments"] += piece.function.arguments or ""
    if refused or end == "content_filter":
        return Failure("Refused").said()
    if end is None:
        return Failure("Unavailable").said()
    calls = [call | {"arguments": json.loads(call["arguments"])} for call in calls.values()]
    return outcome(text, calls, end == "length", counts(usage))


def counts(usage):
    if usage is None:
        return None
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return {
        "input": usage.prompt_tokens,
        "cacheRead": prompt and prompt.cached_tokens or 0,
        "cacheWrite": getattr(prompt, "cache_write_tokens", None) or 0,
        "output": usage.completion_tokens,
        "reasoning": completion and completion.reasoning_tokens or 0,
    }


def arguments(lane, request):
    config = request["config"]
    is_compatible = lane["provider"] == "openai"
    found = {"model": lane["model"], "messages": messages(request), "stream": True, "stream_options": {"include_usage": True}}
    # A server at a base URL of its own knows the older name, and top_k besides.
    limit = "max_tokens" if is_compatible else "max_completion_tokens"
    names = {"temperature": "temperature", "topP": "top_p", "maxOutputTokens": limit, "stopSequences": "stop"}
    found |= {theirs: config[ours] for ours, theirs in names.items() if ours in config}
    if is_compatible and "topK" in config:
        found["extra_body"] = {"top_k": config["topK"]}
    if request["tools"]:
        found["tools"] = [{"type": "function", "function": function(tool)} for tool in request["tools"]]
    match choice_of(request):
        case "none" | "required" as choice:
            found["tool_choice"] = choice
        case {"tool": name}:
            found["tool_choice"] = {"type": "function", "function": {"name": name}}
    if request["output"]:
        found["response_format"] = {"type": "json_schema", "json_schema": {"name": "output", "schema": request["output"]}}
    elif request["output"] is not None:
        found["response_format"] = {"type": "json_object"}
    return found


def function(tool):
    return {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}


def messages(request):
    found = [{"role": "system", "content": request["system"]}] if request["system"] else []
    if request["output"] == {}:
        found.append({"role": "system", "content": json_words(request["output"])})
    for message in request["messages"]:
        [(kind, value)] = message.items()
        if kind == "user":
            found.append({"role": "user", "content": content(value)})
        elif kind == "assistant":
            found.append({"role": "assistant", "content": value})
        elif kind == "call":
            if found[-1]["role"] != "assistant":
                found.append({"role": "assistant"})
            function = {"name": value["name"], "arguments": json.dumps(value["arguments"], separators=(",", ":"))}
            found[-1].setdefault("tool_calls", []).append({"id": value["id"], "type": "function", "function": function})
        else:
            # The API has no mark of a failed call.
            text = value["outcome"].get("Ok") or f"Error: {value['outcome']['Err']}"
            found.append({"role": "tool", "tool_call_id": value["id"], "content": text})
    return found


def content(parts):
    if all("text" in part for part in parts):
        return "".join(part["text"] for part in parts)
    return [part_of(part) for part in parts]


def part_of(part):
    if "text" in part:
        return {"type": "text", "text": part["text"]}
    type, data = media_of(part)
    url = f"data:{type};base64,{data}"
    if type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": "file", "file_data": url}}
