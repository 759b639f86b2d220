"""The requests that are compared, in the runner's own form, and the places at which they are sent: a lane is a provider with one way
of addresses and credentials."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MODEL = "model-1"
ARN = "arn:aws:bedrock:eu-central-1:1:inference-profile/eu.acme.m-v1:0"
PICTURE = "data:image/png;base64,iVBORw0KGgo="
DOCUMENT = "data:application/pdf;base64,JVBERi0="
WEATHER = {
    "name": "weather",
    "description": "tells the weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CLOCK = {"name": "clock", "description": "tells the time", "input_schema": {"type": "object", "properties": {}}}
# The names are sorted and there are no blanks: some providers get the schema as text.
SCHEMA = {"properties": {"city": {"type": "string"}}, "required": ["city"], "type": "object"}

# Errors of HTTP and of streams, by the names of their answers.
FAILURES = [
    "bad-request", "no-key", "forbidden", "not-found", "too-large", "limited", "no-quota", "not-ready", "timeout", "failing-model",
    "failing", "unavailable", "overloaded", "refused", "filtered-question", "failing-within", "failing-stream", "refused-within",
    "malformed", "broken-off",
]

# What a model of each wire says before it calls, as the runner keeps it.
THOUGHTS = {
    "anthropic": {"blocks": [
        {"type": "thinking", "thinking": "The city is Bern.", "signature": "c2lnbmVk"},
        {"type": "redacted_thinking", "data": "c2VjcmV0"},
    ]},
    "gemini": {"signature": "c2lnbmVk"},
    "converse": {"reasoning": [
        {"reasoningContent": {"reasoningText": {"text": "The city is Bern.", "signature": "c2lnbmVk"}}},
        {"reasoningContent": {"redactedContent": "c2VjcmV0"}},
    ]},
}


def user(*parts):
    return {"user": [{"text": part} if isinstance(part, str) else part for part in parts]}


def media(url):
    return {"media": {"url": url, "content_type": None}}


def call(id, name, arguments, thought=None):
    return {"call": {"id": id, "name": name, "arguments": arguments} | ({"thought": thought} if thought else {})}


def result(id, name, outcome):
    return {"tool_result": {"id": id, "name": name, "outcome": outcome}}


def request(*messages, system=None, tools=(), config=None, output=None):
    """Returns a request; `output` is None, or a schema, which is empty for any JSON."""
    return {"system": system, "messages": list(messages), "tools": list(tools), "config": config or {}, "output": output}


def cases(wire, answers):
    """Returns the cases of a wire: names, each with its answer and its request."""
    hello, tools = user("hello"), [WEATHER, CLOCK]
    history = [
        user("how is the weather in Bern and in Ulm?"),
        {"assistant": "I look."},
        call("call_1", "weather", {"city": "Bern"}),
        call("call_2", "weather", {"city": "Ulm"}),
        result("call_1", "weather", {"Ok": "rain"}),
        result("call_2", "weather", {"Err": "no such city"}),
    ]
    settings = {"temperature": 0.5, "maxOutputTokens": 100, "topP": 0.75, "stopSequences": ["END"]}
    found = {
        "text": ("text", request(hello)),
        "system": ("text", request(hello, system="be brief")),
        "conversation": ("text", request(hello, {"assistant": "Hi."}, user("and now?"))),
        "settings": ("text", request(hello, config=settings)),
        "top-k": ("text", request(hello, config={"topK": 40})),
        "calls": ("calls", request(hello, tools=tools)),
        "results": ("text", request(*history, tools=tools)),
        "picture": ("text", request(user("what is this?", media(PICTURE)))),
        "document": ("text", request(user(media(DOCUMENT), "what is this?"))),
        "schema": ("json", request(hello, output=SCHEMA)),
        "any-json": ("json", request(hello, output={})),
        "schema-and-tools": ("json", request(hello, tools=tools, output=SCHEMA)),
        "choice-auto": ("calls", request(hello, tools=tools, config={"toolChoice": "auto"})),
        "choice-none": ("text", request(hello, tools=tools, config={"toolChoice": "none"})),
        "choice-required": ("calls", request(hello, tools=tools, config={"toolChoice": "required"})),
        "choice-tool": ("calls", request(hello, tools=tools, config={"toolChoice": {"tool": "weather"}})),
        "choice-after-results": ("text", request(*history, tools=tools, config={"toolChoice": "required"})),
        "cache": ("usage", request(hello, system="be brief", tools=tools, config={"cache": "5m"})),
        "cache-for-an-hour": ("usage", request(hello, system="be brief", config={"cache": "1h"})),
        "usage": ("usage", request(hello)),
        "truncated": ("truncated", request(hello)),
    }
    if wire in THOUGHTS:
        thought = [hello, call("call_1", "weather", {"city": "Bern"}, THOUGHTS[wire]), result("call_1", "weather", {"Ok": "rain"})]
        found["thinking"] = ("thinking", request(hello, tools=tools))
        found["thoughts"] = ("text", request(*thought, tools=tools))
    if wire == "converse":
        found["results-without-tools"] = ("text", request(*history))
    found |= {failure: (failure, request(hello)) for failure in FAILURES if failure in answers}
    unused = set(answers) - {answer for answer, _ in found.values()}
    assert not unused, f"no case of {wire} has the answers {unused}"
    return found


def lanes(address, token):
    """Returns the lanes: how the runner finds its provider, but for the base URL, whose end is `base`. `token` is a file with one."""
    key = (ROOT / "src/runner/src/models/tests/fixtures/google-key.pem").read_text()
    file = {
        "type": "service_account", "client_email": "agents@acme.example", "private_key": key, "private_key_id": "k1",
        "project_id": "acme", "token_uri": f"{address}/token",
    }
    account = {"GOOGLE_APPLICATION_CREDENTIALS": json.dumps(file)}
    keys = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
    role = {"AWS_ROLE_ARN": "arn:aws:iam::1:role/agents", "AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ENDPOINT_URL_STS": f"{address}/sts/"}
    agent = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{address}/container", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": token}
    return {
        "openai": lane("openai", "openai", "/v1", {"OPENAI_API_KEY": "KEY"}),
        "azure-dated": lane("azure-openai", "openai", "", {"AZURE_OPENAI_API_KEY": "KEY"}, settings={"apiVersion": "2024-10-21"}),
        "azure-dated-token": lane(
            "azure-openai", "openai", "", {"AZURE_OPENAI_AD_TOKEN": "TOKEN"}, settings={"apiVersion": "2024-10-21"}
        ),
        "azure-v1": lane("azure-openai", "openai", "", {"AZURE_OPENAI_AD_TOKEN": "TOKEN"}),
        "anthropic": lane("anthropic", "anthropic", "", {"ANTHROPIC_API_KEY": "KEY"}),
        "anthropic-token": lane("anthropic", "anthropic", "", {"ANTHROPIC_AUTH_TOKEN": "TOKEN"}),
        "anthropic-vertex": lane("anthropic-vertex", "anthropic", "", account, region="europe-west1"),
        "gemini": lane("gemini", "gemini", "", {"GEMINI_API_KEY": "KEY"}),
        "gemini-vertex": lane("gemini-vertex", "gemini", "", account, region="europe-west1"),
        "bedrock": lane("bedrock", "converse", "", keys, region="eu-central-1"),
        "bedrock-session": lane(
            "bedrock", "converse", "", keys | {"AWS_SESSION_TOKEN": "a+session/="}, region="eu-central-1", model=ARN
        ),
        "bedrock-bearer": lane(
            "bedrock", "converse", "", {"AWS_BEARER_TOKEN_BEDROCK": "TOKEN"}, region="eu-central-1", model="eu.acme.m-v1:0"
        ),
        # Where only the credentials come from elsewhere, one case tells.
        "bedrock-role": lane("bedrock", "converse", "", role, region="eu-central-1", cases=["text"]),
        "bedrock-container": lane("bedrock", "converse", "", agent, region="eu-central-1", cases=["text"]),
    }


def lane(provider, wire, base, variables, region=None, settings=None, model=MODEL, cases=None):
    return {
        "provider": provider, "wire": wire, "base": base, "variables": variables, "region": region, "settings": settings or {},
        "model": model, "cases": cases,
    }
