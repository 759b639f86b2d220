"""What a call came to, in the form that both sides have: an answer, or a kind of failure; and what several sides read alike."""

import json
from dataclasses import dataclass

# Codes of providers that mean more than the status.
CODES = {
    "insufficient_quota": "Refused",
    "ServiceQuotaExceededException": "Refused",
    "content_filter": "Refused",
    "ModelTimeoutException": "Timeout",
}


@dataclass
class Failure:
    kind: str
    # Milliseconds that the provider asks to wait.
    wait: int | None = None

    def said(self):
        return {"error": self.kind, "waitMs": self.wait}


def outcome(text, calls, is_truncated, usage, thought=None):
    """Returns an answer; `thought` is what goes back to the model with the calls."""
    end = "truncated" if is_truncated else "calls" if calls else "stop"
    return {"text": text, "calls": calls, "end": end, "usage": usage, "thought": thought}


def failure(status, code, headers):
    """Returns the failure that a status and a code mean, by the table of failures in docs/agents.md."""
    millis, seconds = headers.get("retry-after-ms"), headers.get("retry-after")
    wait = int(millis) if millis else int(seconds) * 1000 if seconds else None
    kind = CODES.get(code)
    if kind is None:
        is_unavailable = status in (408, 424, 429) or status >= 500
        kind = "Refused" if status in (401, 402, 403) else "Unavailable" if is_unavailable else "BadRequest"
    return Failure(kind, wait).said()


def json_words(schema):
    """Returns the runner's instruction to answer with JSON, for providers without a setting for it."""
    text = "Answer with JSON alone: nothing before it, nothing after it, no Markdown fence."
    if schema:
        text += " It must conform to this JSON Schema:\n" + json.dumps(schema, separators=(",", ":"))
    return text


def instructions(request, *more):
    """Returns the instructions of a provider that takes them in one place; None without any."""
    return "\n\n".join(filter(None, [request["system"], *more])) or None


def media_of(part):
    """Returns the type and the base64 of a part."""
    head, data = part["media"]["url"].split(",")
    return head.removeprefix("data:").removesuffix(";base64"), data


def entries(request):
    """Returns the messages as alternating entries: `user` with parts, `assistant` with a text and calls, `results`."""
    found = []
    for message in request["messages"]:
        [(kind, value)] = message.items()
        if kind == "user":
            found.append(("user", value))
        elif kind == "assistant":
            found.append(("assistant", {"text": value, "calls": []}))
        elif kind == "call":
            if found[-1][0] != "assistant":
                found.append(("assistant", {"text": "", "calls": []}))
            found[-1][1]["calls"].append(value)
        else:
            if found[-1][0] != "results":
                found.append(("results", []))
            found[-1][1].append(value)
    return found


def result_of(value):
    """Returns the text of a result, and whether the call failed."""
    [(kind, text)] = value["outcome"].items()
    return text, kind == "Err"


def choice_of(request):
    """Returns the choice of tools: None for the model's own, which it is after results, else every answer would be a call."""
    choice = request["config"].get("toolChoice")
    is_answered = "tool_result" in request["messages"][-1]
    return None if choice == "auto" or (is_answered and choice != "none") else choice
