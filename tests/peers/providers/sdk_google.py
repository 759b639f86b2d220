"""Sends a case with Google's client, as its reference says: https://googleapis.github.io/python-genai/."""

import base64
import json

import httpx2
from google import genai
from google.genai import errors, types

from google_account import credentials
from outcome import Failure, choice_of, entries, failure, instructions, json_words, media_of, outcome, result_of

REFUSED = {
    "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
}


def client(lane, base):
    if lane["provider"] == "gemini":
        options = types.HttpOptions(base_url=base, api_version="v1beta")
        return genai.Client(api_key=lane["variables"]["GEMINI_API_KEY"], http_options=options)
    options = types.HttpOptions(base_url=base, api_version="v1")
    return genai.Client(
        vertexai=True, credentials=credentials(lane), project="acme", location=lane["region"], http_options=options
    )


def ask(lane, base, request):
    is_vertex = lane["provider"] == "gemini-vertex"
    try:
        with client(lane, base) as known:
            return read(known.models.generate_content_stream(**arguments(lane, request, is_vertex)))
    except errors.APIError as error:
        if error.response is None or error.response.status_code == 200:
            return Failure("Unavailable").said()
        return failure(error.code, error.status, error.response.headers)
    except (errors.UnknownApiResponseError, json.JSONDecodeError):
        return Failure("Malformed").said()
    except httpx2.HTTPError:
        return Failure("Unavailable").said()


def read(stream):
    text, calls, end, usage, thought = "", [], None, None, None
    for chunk in stream:
        usage = chunk.usage_metadata or usage
        if chunk.prompt_feedback and chunk.prompt_feedback.block_reason:
            return Failure("Refused").said()
        for candidate in chunk.candidates or []:
            end = candidate.finish_reason.value if candidate.finish_reason else end
            for part in (candidate.content and candidate.content.parts) or []:
                text += part.text or "" if not part.thought else ""
                if part.function_call:
                    calls.append({"id": part.function_call.id, "name": part.function_call.name, "arguments": part.function_call.args})
                    if part.thought_signature:
                        thought = {"signature": base64.b64encode(part.thought_signature).decode()}
    if end in REFUSED:
        return Failure("Refused").said()
    if end is None:
        return Failure("Unavailable").said()
    count = lambda name: getattr(usage, name) or 0
    counts = {
        "input": count("prompt_token_count") + count("tool_use_prompt_token_count"),
        "cacheRead": count("cached_content_token_count"),
        "cacheWrite": 0,
        "output": count("candidates_token_count") + count("thoughts_token_count"),
        "reasoning": count("thoughts_token_count"),
    }
    return outcome(text, calls, end == "MAX_TOKENS", counts, thought)


def arguments(lane, request, is_vertex):
    settings = request["config"]
    names = {
        "temperature": "temperature", "topP": "top_p", "topK": "top_k", "maxOutputTokens": "max_output_tokens",
        "stopSequences": "stop_sequences",
    }
    config = {theirs: settings[ours] for ours, theirs in names.items() if ours in settings}
    words = None
    if request["output"] is not None and request["tools"]:
        words = json_words(request["output"])
    elif request["output"] is not None:
        config["response_mime_type"] = "application/json"
        if request["output"]:
            config["response_json_schema"] = request["output"]
    if system := instructions(request, words):
        config["system_instruction"] = types.Content(parts=[types.Part(text=system)])
    if request["tools"]:
        declarations = [
            types.FunctionDeclaration(
                name=tool["name"], description=tool["description"], parameters_json_schema=tool["input_schema"]
            )
            for tool in request["tools"]
        ]
        config["tools"] = [types.Tool(function_declarations=declarations)]
    calling = None
    match choice_of(request):
        case "none":
            calling = types.FunctionCallingConfig(mode="NONE")
        case "required":
            calling = types.FunctionCallingConfig(mode="ANY")
        case {"tool": name}:
            calling = types.FunctionCallingConfig(mode="ANY", allowed_function_names=[name])
    if calling:
        config["tool_config"] = types.ToolConfig(function_calling_config=calling)
    return {
        "model": lane["model"], "contents": contents(request, is_vertex),
        "config": types.GenerateContentConfig(**config) if config else None,
    }


def contents(request, is_vertex):
    found = []
    for kind, entry in entries(request):
        if kind == "user":
            found.append(types.Content(role="user", parts=[part_of(part) for part in entry]))
        elif kind == "results":
            found.append(types.Content(role="user", parts=[response(value, is_vertex) for value in entry]))
        else:
            parts = [types.Part(text=entry["text"])] if entry["text"] else []
            found.append(types.Content(role="model", parts=parts + [function_call(call, is_vertex) for call in entry["calls"]]))
    return found


def id_of(value, is_vertex):
    # Vertex AI refuses ids that it has not made.
    return None if is_vertex else value["id"]


def function_call(call, is_vertex):
    signature = call.get("thought", {}).get("signature")
    return types.Part(
        function_call=types.FunctionCall(id=id_of(call, is_vertex), name=call["name"], args=call["arguments"]),
        thought_signature=base64.b64decode(signature) if signature else None,
    )


def response(value, is_vertex):
    text, is_failed = result_of(value)
    body = {"error" if is_failed else "output": text}
    return types.Part(
        function_response=types.FunctionResponse(id=id_of(value, is_vertex), name=value["name"], response=body)
    )


def part_of(part):
    if "text" in part:
        return types.Part(text=part["text"])
    type, data = media_of(part)
    return types.Part(inline_data=types.Blob(mime_type=type, data=base64.b64decode(data)))
