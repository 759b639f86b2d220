"""Checks bodies against what the vendors publish in their clients: the types of parameters of OpenAI and Anthropic, the models of
Google, and AWS's service model. Fields that these do not have are problems."""

import base64
import types as python_types
import typing

from anthropic.types.message_create_params import MessageCreateParamsStreaming
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
from google.genai import types
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from typing_extensions import NotRequired, Required, get_type_hints, is_typeddict

_hints = {}
_operation = None


def problems(lane, model, body):
    """Returns what is wrong with a body."""
    match lane["wire"]:
        case "openai":
            # Servers at a base URL of their own know top_k.
            known = {name: value for name, value in body.items() if name != "top_k" or lane["provider"] != "openai"}
            return check(known, CompletionCreateParamsStreaming, "body")
        case "anthropic":
            if lane["provider"] == "anthropic-vertex":
                if body.get("anthropic_version") != "vertex-2023-10-16" or "model" in body:
                    return ["body: at Vertex AI it has anthropic_version and no model"]
                body = {"model": model} | {name: value for name, value in body.items() if name != "anthropic_version"}
            # The client's own version of the API does not take these any more.
            body = {name: value for name, value in body.items() if name not in ("temperature", "top_p", "top_k")}
            return check(body, MessageCreateParamsStreaming, "body")
        case "gemini":
            return of_google(body)
        case "converse":
            return of_aws(model, body)


def check(value, form, path):
    """Returns the problems of a value that should have a form."""
    origin, arguments = typing.get_origin(form), typing.get_args(form)
    if form in (typing.Any, object) or isinstance(form, typing.TypeVar):
        return []
    if origin is typing.Annotated or origin in (Required, NotRequired, typing.Required, typing.NotRequired):
        return check(value, arguments[0], path)
    if origin in (typing.Union, python_types.UnionType):
        found = [check(value, option, path) for option in arguments]
        return [] if any(not each for each in found) else min(found, key=depth)
    if origin is typing.Literal:
        return [] if value in arguments else [f"{path}: {value!r} is none of {arguments}"]
    if is_typeddict(form):
        return check_fields(value, form, path)
    if origin is dict:
        if not isinstance(value, dict):
            return [f"{path}: not an object"]
        return [each for name, item in value.items() for each in check(item, arguments[1], f"{path}.{name}")]
    if origin is not None and form is not str:
        if not isinstance(value, list):
            return [f"{path}: not a list"]
        return [each for index, item in enumerate(value) for each in check(item, arguments[0], f"{path}[{index}]")]
    accepted = {float: (int, float), type(None): type(None)}.get(form, form) if isinstance(form, type) else object
    is_flag = isinstance(value, bool) and form is not bool
    return [] if isinstance(value, accepted) and not is_flag else [f"{path}: {value!r} is no {form}"]


def depth(found):
    """Orders the problems of the options of a union: the most specific first."""
    return (len(found), -max(each.count(".") + each.count("[") for each in found))


def check_fields(value, form, path):
    if not isinstance(value, dict):
        return [f"{path}: not an object"]
    if form not in _hints:
        _hints[form] = get_type_hints(form, include_extras=True)
    hints = _hints[form]
    found = [f"{path}.{name}: unknown" for name in value if name not in hints]
    found += [f"{path}.{name}: missing" for name in form.__required_keys__ if name not in value]
    for name, item in value.items():
        if name in hints:
            found += check(item, hints[name], f"{path}.{name}")
    return found


# Fields of a request to Gemini, whose models forbid unknown fields.
OF_GOOGLE = {
    "contents": types.Content, "systemInstruction": types.Content, "tools": types.Tool, "toolConfig": types.ToolConfig,
    "generationConfig": types.GenerationConfig, "safetySettings": types.SafetySetting,
}


def of_google(body):
    found = []
    for name, value in body.items():
        if name not in OF_GOOGLE:
            found.append(f"body.{name}: unknown")
            continue
        for each in value if isinstance(value, list) else [value]:
            try:
                OF_GOOGLE[name].model_validate(each)
            except ValueError as error:
                found.append(f"body.{name}: {error}")
    return found


def of_aws(model, body):
    global _operation
    if _operation is None:
        service = ServiceModel(Loader().load_service_model("bedrock-runtime", "service-2"), "bedrock-runtime")
        _operation = service.operation_model("ConverseStream")
    report = ParamValidator().validate({"modelId": model, **body}, _operation.input_shape)
    return [report.generate_report()] if report.has_errors() else of_blobs(body, "body")


def of_blobs(value, path):
    """Returns which bytes are no base64, as JSON has them."""
    if isinstance(value, list):
        return [each for index, item in enumerate(value) for each in of_blobs(item, f"{path}[{index}]")]
    if not isinstance(value, dict):
        return []
    found = [each for name, item in value.items() for each in of_blobs(item, f"{path}.{name}")]
    for name in ("bytes", "redactedContent"):
        if name in value:
            try:
                base64.b64decode(value[name], validate=True)
            except ValueError:
                found.append(f"{path}.{name}: no base64")
    return found
