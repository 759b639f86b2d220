"""Judges whether both sides did the same: the requests that came, and what each made of the answers."""

import base64
import json
from fnmatch import fnmatch

import accepts
import signatures
from double import ISSUED

# Headers that mean something to a provider. Content types are compared without their parameters.
HEADERS = [
    "authorization", "api-key", "x-api-key", "x-goog-api-key", "anthropic-version", "anthropic-beta", "content-type",
    "x-amz-security-token",
]

# Differences that are meant, by lane, case and part. One that is not there any more is a failure too.
MEANT = {
    ("anthropic", "*", "header authorization"): "the API takes a key in both headers, and gateways look for the older one",
    ("anthropic", "*", "header x-api-key"): "likewise",
}

# Names that Google's client writes in their other spelling.
SPELLINGS = {
    "allowed_function_names": "allowedFunctionNames",
    "mime_type": "mimeType",
    "parameters_json_schema": "parametersJsonSchema",
}


def judge(lanes, requests, address, sdk, ours, of_sdk):
    """Returns all differences, each as a line. The first `of_sdk` requests for credentials are those of the
    clients."""
    found, used = [], set()
    for (lane, case), theirs in sdk.items():
        parts = [] if (lane, case) in ours else [("answer", "the runner said nothing")]
        if not parts and ours[lane, case] != theirs:
            parts.append(("answer", f"the client has {theirs}, the runner {ours[lane, case]}"))
        sides = [requests.kept.get((side, lane, case), []) for side in ("sdk", "ours")]
        if len(sides[0]) != 1 or not sides[1]:
            parts.append(("requests", f"the client sent {len(sides[0])}, the runner {len(sides[1])}"))
        else:
            for sent in sides[1]:
                parts += compare(lanes[lane], sides[0][0], sent)
            for sent in (sides[0][0], *sides[1]):
                parts += alone(lanes[lane], address, sent)
        for part, text in dict.fromkeys(parts):
            meant = [each for each in MEANT if all(fnmatch(value, pattern) for value, pattern in zip((lane, case, part), each))]
            used.update(meant)
            if not meant:
                found.append(f"{lane} {case}: {part}: {text}")
    found += [f"{lane} {case}: no such case" for lane, case in ours.keys() - sdk.keys()]
    found += [f"the difference {' '.join(each)} is gone: remove it from MEANT" for each in MEANT.keys() - used]
    return found + exchanges(requests.credentials, of_sdk)


def compare(lane, theirs, ours):
    """Returns the differences of two requests."""
    found = []
    if (theirs.method, theirs.target) != (ours.method, ours.target):
        found.append(("target", f"the client sends to {theirs.method} {theirs.target}, the runner {ours.method} {ours.target}"))
    for name in HEADERS:
        values = [header(side, name) for side in (theirs, ours)]
        if values[0] != values[1]:
            found.append((f"header {name}", f"the client sends {values[0]}, the runner {values[1]}"))
    bodies = [named_alike(json.loads(side.body)) for side in (theirs, ours)]
    for path, values in differences(*bodies, "body"):
        found.append((path, f"the client sends {values[0]}, the runner {values[1]}"))
    return found


def header(request, name):
    value = request.headers.get(name)
    if value is None:
        return None
    if name == "content-type":
        return value.partition(";")[0]
    # Each signature is verified; here the scope alone is compared.
    return value.partition(", SignedHeaders")[0] if value.startswith("AWS4-") else value


def named_alike(value):
    """Returns a body with one spelling of names for which Google takes both, and without its client's empty settings."""
    if isinstance(value, list):
        return [named_alike(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {name: item for name, item in value.items() if (name, item) != ("generationConfig", {})}
    return {SPELLINGS.get(name, name): named_alike(item) for name, item in kept.items()}


def differences(one, other, path):
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            yield from differences(one.get(name, "nothing"), other.get(name, "nothing"), f"{path}.{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, pair in enumerate(zip(one, other)):
            yield from differences(*pair, f"{path}[{index}]")
    elif one != other:
        yield path, (one, other)


def alone(lane, address, request):
    """Returns what is wrong with a request, whatever the other side sent."""
    found = [("form", text) for text in accepts.problems(lane, lane["model"], json.loads(request.body))]
    if text := signatures.problem(lane, address, request) if lane["provider"] == "bedrock" else None:
        found.append(("signature", text))
    return found


def exchanges(found, of_sdk):
    """Compares the requests for credentials: those of the clients are the first `of_sdk`."""
    lines = []
    for kind in ISSUED:
        sides = [{meaning(said) for path, said in side if path == kind} for side in (found[:of_sdk], found[of_sdk:])]
        if len(sides[0]) != 1 or sides[0] != sides[1]:
            lines.append(f"for credentials the clients say to {kind} {sides[0]}, the runner {sides[1]}")
    return lines


def meaning(said):
    """Returns what a request for credentials says, without times and the name of the session, which is free."""
    said = {name: value for name, value in said.items() if name != "RoleSessionName"}
    if "assertion" in said:
        head, claims = (decode(part) for part in said["assertion"].split(".")[:2])
        said["assertion"] = [head, {"life": claims.pop("exp") - claims.pop("iat")} | claims]
    return json.dumps(said, sort_keys=True)


def decode(part):
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
