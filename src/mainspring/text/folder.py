"""What a bundle takes from a model folder: files read, nothing interpreted further than needed."""

from pathlib import Path
from typing import Any

import msgspec

from mainspring.errors import ModelError, TemplateError, TokenizerError
from mainspring.text.familiarity import FILE
from mainspring.text.sampling import SamplingDefaults, read_sampling

GENERATION = "generation_config.json"
FALLBACK_NAME = "built-in template"
# For models without a chat template: turns as headed paragraphs, no control tokens.
FALLBACK = """\
{% if tools %}
### tools
{% for tool in tools %}
{{ tool.function | tojson }}
{% endfor %}

{% endif %}
{% for message in messages %}
### {{ message.role }}
{% if message.reasoning_content %}
({{ message.reasoning_content | trim }})
{% endif %}
{{ message.content | trim }}
{% for call in message.tool_calls or [] %}
call {{ call.function.name }} {{ call.function.arguments | tojson }}
{% endfor %}

{% endfor %}
{% if add_generation_prompt %}
### assistant
{% endif %}
"""


class Files(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a bundle as it is packed. `scoring` and `familiarity` are empty where there is no such
    file."""

    tokenizer: bytes
    tokenizer_name: str
    template: str
    template_name: str
    variables: dict[str, str]
    scoring: bytes
    eos_ids: tuple[int, ...]
    context_tokens: int | None
    notes: tuple[str, ...] = ()
    version: int = 1
    familiarity: bytes = b""
    sampling: SamplingDefaults = SamplingDefaults()


def read_folder(folder: Path) -> Files:
    """TokenizerError, TemplateError, ModelError name the file at fault."""
    path = folder / "tokenizer.json"
    try:
        tokenizer = path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"{path} can't be read: {error.strerror}") from None
    settings = _json(folder / "tokenizer_config.json")
    config, generation = _json(folder / "config.json"), _json(folder / GENERATION)
    template, name = _template(folder, settings)
    notes = () if name != FALLBACK_NAME else ("the folder has no chat template: a plain one is used",)
    variables = {key: text for key, value in settings.items() if key.endswith("_token") and (text := _word(value))}
    scoring, familiarity = folder / "scoring.json", folder / FILE
    return Files(
        tokenizer=tokenizer,
        tokenizer_name=str(path),
        template=template,
        template_name=name,
        variables=variables,
        scoring=scoring.read_bytes() if scoring.is_file() else b"",
        eos_ids=_eos_ids(generation, config, variables, tokenizer),
        context_tokens=_number(config, "max_position_embeddings"),
        notes=notes,
        familiarity=familiarity.read_bytes() if familiarity.is_file() else b"",
        sampling=read_sampling(generation, folder / GENERATION),
    )


def _json(path: Path) -> dict[str, Any]:
    """An object, empty where the file is missing."""
    try:
        value = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        raise ModelError(f"{path}: {error}") from None
    except RecursionError:
        raise ModelError(f"{path} is nested too deeply") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds no JSON object")
    return value


def _template(folder: Path, settings: dict[str, Any]) -> tuple[str, str]:
    """(source, name): chat_template.jinja, else the one in tokenizer_config.json, else the built-in one."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8"), path.name
        except (OSError, UnicodeDecodeError) as error:
            raise TemplateError(f"{path} can't be read: {type(error).__name__}") from None
    found = settings.get("chat_template")
    if isinstance(found, list):
        named = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
        found = named.get("default", next(iter(named.values()), None))
    if found is None:
        return FALLBACK, FALLBACK_NAME
    if not isinstance(found, str):
        raise TemplateError(f"{folder / 'tokenizer_config.json'}: chat_template is neither text nor named texts")
    return found, "tokenizer_config.json chat_template"


def _word(value: Any) -> str | None:
    """A special token is written as text or as an object with `content`."""
    word = value.get("content") if isinstance(value, dict) else value
    return word if isinstance(word, str) else None


def _number(config: dict[str, Any], key: str) -> int | None:
    for part in (config, config.get("text_config")):
        if isinstance(part, dict) and isinstance(part.get(key), int):
            return int(part[key])
    return None


def _eos_ids(
    generation: dict[str, Any], config: dict[str, Any], variables: dict[str, str], tokenizer: bytes
) -> tuple[int, ...]:
    """All ids that end a text, by the generation config, the config and the tokenizer's own, in that order."""
    found: list[int] = []
    for source in (generation, config, config.get("text_config") or {}):
        value = source.get("eos_token_id")
        found += [value] if isinstance(value, int) else value or []
    if (word := variables.get("eos_token")) is not None:
        found += [token["id"] for token in _added(tokenizer) if token.get("content") == word]
    return tuple(dict.fromkeys(found))


def _added(tokenizer: bytes) -> list[dict[str, Any]]:
    """Empty for what is no tokenizer document: whoever loads it says so."""
    try:
        return msgspec.json.decode(tokenizer, type=_Added).added_tokens or []
    except (msgspec.DecodeError, RecursionError):
        return []


class _Added(msgspec.Struct):
    added_tokens: list[dict[str, Any]] | None = None
