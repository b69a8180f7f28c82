"""The OpenAPI 3.1 document, made from the structs that decode the bodies."""

from typing import Any

import msgspec

from mainspring.gateway import schemas as s
from mainspring.gateway import schemas_anthropic as a
from mainspring.gateway import schemas_openai as o
from mainspring.gateway.config import GatewayConfig
from mainspring.gateway.errors import surface_of
from mainspring.version import __version__

PLACE = "#/components/schemas/{name}"
Json = dict[str, Any]
POSTS: dict[str, tuple[str, type, str]] = {
    "/v1/scores": ("Score one span against behaviors.", s.ScoresIn, "scores"),
    "/api/v1/scores": ("The same under its hosted path.", s.ScoresIn, "scoresHosted"),
    "/v1/systemone": ("Answer typed questions about a state.", s.SystemOneIn, "systemone"),
    "/v1/decisions": ("Answer ordered typed questions about an input.", s.DecisionsIn, "decisions"),
    "/v1/score": ("Label scores of items behind a query.", s.ScoreItemsIn, "scoreItems"),
    "/v1/chat/completions": ("The next message of a conversation.", o.ChatIn, "chatCompletions"),
    "/v1/completions": ("What follows a text.", o.CompletionIn, "completions"),
    "/v1/messages": ("The next message, as Anthropic has it.", a.MessagesIn, "messages"),
    "/v1/messages/count_tokens": ("Tokens of its prompt.", a.CountIn, "countTokens"),
    "/tokenize": ("Token ids of a text or a conversation.", o.TokenizeIn, "tokenize"),
    "/detokenize": ("Text of token ids.", o.DetokenizeIn, "detokenize"),
    "/v1/generative_scoring": ("The first label's score of items behind a query.", s.GenerativeIn, "generativeScoring"),
}
GETS: dict[str, tuple[str, str]] = {
    "/v1/models": ("Models that are served.", "models"),
    "/version": ("The version.", "version"),
    "/health": ("The process is alive.", "health"),
    "/health/ready": ("A pass or canary ended lately on a usable node.", "ready"),
    "/status": ("Nodes, classes, models and requests.", "status"),
}
RESULTS: dict[str, type] = {
    "/v1/scores": s.ScoresOut,
    "/api/v1/scores": s.ScoresOut,
    "/v1/systemone": s.SystemOneOut,
    "/v1/decisions": s.DecisionsOut,
    "/v1/score": s.ScoreItemsOut,
    "/v1/generative_scoring": s.GenerativeOut,
}
ERRORS = {"scoring": "ScoringError", "openai": "OpenAIError", "anthropic": "AnthropicError"}
REFUSALS = {
    "400": "The body is no JSON.",
    "401": "No key, or an unknown one.",
    "403": "The class or the page's origin is not allowed.",
    "404": "No such model.",
    "408": "The body took too long.",
    "413": "A limit of size is exceeded; `limit` and `actual` say which.",
    "415": "The body is not JSON by its Content-Type.",
    "421": "The Host is not this gateway's.",
    "422": "A field is wrong; `param` names it.",
    "429": "It would miss its target, or a rate or quota is used up; `Retry-After` says when to come back.",
    "500": "A fault of ours.",
    "503": "No usable node now.",
    "504": "It timed out.",
}
HEADERS = (
    ("x-slo-class", {"type": "string", "maxLength": 128}, "The class; the key's default without it."),
    ("x-deadline-ms", {"type": "number", "exclusiveMinimum": 0, "maximum": 86_400_000}, "How long the caller waits."),
    ("x-request-id", {"type": "string", "maxLength": 128}, "Comes back; made up without it."),
    ("traceparent", {"type": "string"}, "W3C trace context, carried to the node."),
    ("idempotency-key", {"type": "string", "maxLength": 255}, "A retry under it gets the first answer."),
)


def document(config: GatewayConfig) -> Json:
    """`config` decides whether a key is asked for."""
    kinds = [kind for _, kind, _ in POSTS.values()]
    outs = [*dict.fromkeys(RESULTS.values()), s.ScoringError, s.OpenAIError, s.AnthropicError]
    _, components = msgspec.json.schema_components([*kinds, *outs], ref_template=PLACE)
    paths: Json = {path: {"post": _post(path)} for path in POSTS}
    paths |= {path: {"get": _get(path)} for path in GETS}
    paths["/v1/models/{id}"] = {"get": _model()}
    found: Json = {
        "openapi": "3.1.0",
        "info": {"title": "Mainspring gateway", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {"schemas": components},
    }
    if config.keys:
        found["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"key": []}]
    return found


def _post(path: str) -> Json:
    summary, kind, name = POSTS[path]
    result = RESULTS.get(path)  # replies of other people's APIs are documented by them
    schema: Json = {"type": "object"} if result is None else {"$ref": PLACE.format(name=result.__name__)}
    return {
        "operationId": name,
        "summary": summary,
        "parameters": [
            {"name": header, "in": "header", "schema": shape, "description": text} for header, shape, text in HEADERS
        ],
        "requestBody": {"required": True, "content": _json({"$ref": PLACE.format(name=kind.__name__)})},
        "responses": {"200": _response("The result.", schema), **_refusals(ERRORS[surface_of(path)])},
    }


def _get(path: str) -> Json:
    summary, name = GETS[path]
    wanted = _refusals("OpenAIError", "401", "403", "421", "500")
    if path == "/health/ready":
        wanted["503"] = _response("Not ready; `reason` says why.", {"type": "object"})
    return {
        "operationId": name, "summary": summary,
        "responses": {"200": _response("The answer.", {"type": "object"}), **wanted},
    }  # fmt: skip


def _model() -> Json:
    return {
        "operationId": "model",
        "summary": "One model.",
        "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}],
        "responses": {
            "200": _response("The model.", {"type": "object"}),
            **_refusals("OpenAIError", "401", "403", "404", "421", "500", "503"),
        },
    }


def _refusals(name: str, *statuses: str) -> Json:
    schema = {"$ref": PLACE.format(name=name)}
    return {status: _response(text, schema) for status, text in REFUSALS.items() if not statuses or status in statuses}


def _response(text: str, schema: Json) -> Json:
    return {"description": text, "content": _json(schema)}


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}
