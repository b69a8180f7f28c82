"""The published data sets -> conversations, each with the text it descends from (splits go by that, not by row).

Archives lie in `data/sources/`, as published, with their licence files; one holds our own. Nothing here is random.
"""

import json
import re
import tarfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mainspring.text.span import Message, Span, Text, ToolCall, ToolDefinition, ToolResult

# Published with labels that are the reverse of the name: statements marked as matching say that AI is such a threat.
REVERSED = ("believes-AIs-are-not-an-existential-threat-to-humanity",)
MAX_CHARS = 6000  # a view of about 1,500 tokens


@dataclass(frozen=True)
class Conversation:
    """`text_id` names what was taken from the source: all that is made of it falls into one split."""

    span: Span
    text_id: str
    source: str
    marks: tuple[tuple[str, bool], ...] = ()  # labels that come with the data: (behavior key, present)


@dataclass(frozen=True)
class Statement:
    trait: str
    text: str
    matches: bool
    confidence: float


class Archive:
    """The files of one `name.tar.xz` by path."""

    def __init__(self, folder: Path, name: str) -> None:
        with tarfile.open(folder / f"{name}.tar.xz") as tar:
            self.files = {m.name: self._read(tar, m) for m in tar.getmembers() if m.isfile()}

    @staticmethod
    def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
        handle = tar.extractfile(member)
        return handle.read() if handle else b""

    def named(self, pattern: str) -> Iterator[tuple[str, Any]]:
        """(path, decoded JSON or list of decoded lines) of the files that match, in order of path."""
        for path in sorted(self.files):
            if re.search(pattern, path):
                text = self.files[path].decode("utf-8")
                try:
                    yield path, json.loads(text)
                except ValueError:
                    yield path, [json.loads(line) for line in text.splitlines() if line.strip()]


def statements(folder: Path) -> Iterator[Statement]:
    for path, rows in Archive(folder, "persona-evals").named(r"persona/.*\.jsonl$"):
        for row in rows:
            trait = Path(path).stem
            matches = (row["answer_matching_behavior"].strip() == "Yes") != (trait in REVERSED)
            yield Statement(trait, row["statement"].strip(), matches, float(row.get("label_confidence", 1.0)))


def made_up_traits(folder: Path) -> dict[str, dict[str, Any]]:
    """Our own tables, by name: see `content.traits`."""
    files = Archive(folder, "made-up-traits").files
    return {path: tomllib.loads(files[path].decode("utf-8")) for path in sorted(files) if path.endswith(".toml")}


def conversations(folder: Path) -> Iterator[Conversation]:
    """All of them, in a fixed order, those over MAX_CHARS left out."""
    for reader in (_gpteacher, _arena, _halueval, _factscore, _llmbar, _taskmaster, _tau):
        for found in reader(folder):
            size = sum(len(str(part)) for m in (*found.span.input, *found.span.output) for part in m.parts)
            if size <= MAX_CHARS and found.span.input:
                yield found


def message(role: Any, text: str, *parts: Any) -> Message:
    return Message(role, (*((Text(text),) if text else ()), *parts))


def exchange(question: str, reply: str) -> Span:
    return Span((message("user", question),), (message("assistant", reply),))


def _gpteacher(folder: Path) -> Iterator[Conversation]:
    for path, rows in Archive(folder, "gpteacher").named(r"\.json$"):
        tools = "Toolformer" in path
        for number, row in enumerate(rows):
            asked = "\n".join(filter(None, (row["instruction"], row["input"])))
            span = _toolformer(asked, row["response"]) if tools else exchange(asked, row["response"])
            yield Conversation(span, f"gpteacher/{Path(path).stem}/{number}", "gpteacher")


_CALL = re.compile(r"\b(\w+)\(['\"]([^'\"]{1,200})['\"]\)")


def _toolformer(asked: str, reply: str) -> Span:
    """Tools named in the instruction become definitions, the first call in the reply a tool call."""
    lines = asked.split("\n")
    if not lines[0].startswith("toolformer:") or len(lines) < 3:
        return exchange(asked, reply)
    names = [name.strip() for name in lines[1].partition(":")[2].split(",")]
    tools: list[ToolDefinition] = []
    at = 2
    while at + 1 < len(lines) and len(tools) < len(names) and lines[at + 1].startswith(names[len(tools)] + "("):
        schema = {"type": "object", "properties": {lines[at + 1].split("(")[1].rstrip(")"): {"type": "string"}}}
        tools.append(ToolDefinition(names[len(tools)], lines[at], schema))
        at += 2
    call = _CALL.search(reply)
    parts = (ToolCall(call[1], {"query": call[2]}),) if call else ()
    text = reply[: call.start()].strip() if call else reply
    return Span((message("user", "\n".join(lines[at:])),), (message("assistant", text, *parts),), tuple(tools))


def _arena(folder: Path) -> Iterator[Conversation]:
    archive = Archive(folder, "arena-hard")
    for path, rows in archive.named(r"model_answer/.*\.jsonl$"):
        for row in rows:
            asked, answer = row["messages"][0]["content"], row["messages"][1]["content"]
            reply = answer["answer"] if isinstance(answer, dict) else answer
            yield Conversation(exchange(asked, reply), f"arena/{row['uid']}", f"arena-hard/{Path(path).stem}")


def _halueval(folder: Path) -> Iterator[Conversation]:
    for _, rows in Archive(folder, "halueval-general").named(r"\.json$"):
        for row in rows:
            marks = (("made_up_facts", row["hallucination"] == "yes"),)
            span = exchange(row["user_query"], row["chatgpt_response"])
            yield Conversation(span, f"halueval/{row['ID']}", "halueval", marks)


def _factscore(folder: Path) -> Iterator[Conversation]:
    for _, rows in Archive(folder, "factscore").named(r"labeled_data/.*\.jsonl$"):
        for row in rows:
            asked = row["input"].removeprefix("Question:").strip()
            yield Conversation(exchange(asked, row["output"]), f"factscore/{row['topic']}", "factscore")


def _llmbar(folder: Path) -> Iterator[Conversation]:
    for path, rows in Archive(folder, "llmbar").named(r"dataset\.json$"):
        for number, row in enumerate(rows):
            for side in (1, 2):
                marks = (("follows_instruction", row["label"] == side),)
                text_id = f"llmbar/{Path(path).parent.name}/{number}"
                yield Conversation(exchange(row["input"], row[f"output_{side}"]), text_id, "llmbar", marks)


def _taskmaster(folder: Path) -> Iterator[Conversation]:
    for path, rows in Archive(folder, "taskmaster-reward").named(r"/reward/reward_\d+\.json$"):
        for row in rows:
            turns = [_taskmaster_turn(turn) for turn in json.loads(row["context"])]
            output = _taskmaster_turn(json.loads(row["generation"]))
            span = Span(tuple(t for t in turns if t.parts), (output,) if output.parts else ())
            marks = (("good_step", row["reward"] > 0),) if output.parts else ()
            said = "/".join(turn.text for turn in turns if turn.role == "user")  # rows are prefixes of one another
            yield Conversation(span, f"taskmaster/{Path(path).parent.parent.name}/{said[:40]}", "taskmaster", marks)


def _taskmaster_turn(turn: dict[str, Any]) -> Message:
    if "api" in turn:
        calls = [ToolCall(name, arguments) for name, arguments in turn["api"].items()]
        return message("assistant", turn.get("text") or "", *calls)
    if "response" in turn:
        return Message("tool", tuple(ToolResult(content, name=name) for name, content in turn["response"].items()))
    return message("user" if turn["role"] == "user" else "assistant", turn.get("text") or "")


def _tau(folder: Path) -> Iterator[Conversation]:
    """Prefixes of a trajectory that end with the agent, its long policy cut to the head."""
    for _, rows in Archive(folder, "tau-bench").named(r"historical_trajectories/.*\.json$"):
        for row in rows:
            messages = [_openai_message(entry) for entry in row["traj"]]
            ends = [i for i, m in enumerate(messages) if m.role == "assistant" and i > 2]
            for end in ends[1::3]:
                span = Span(tuple(messages[:end]), (messages[end],))
                yield Conversation(span, f"tau/{row['task_id']}", "tau-bench")


def _openai_message(entry: dict[str, Any]) -> Message:
    text = entry.get("content") or ""
    if entry["role"] == "tool":
        return Message("tool", (ToolResult(text[:600], name=entry.get("name")),))
    if entry["role"] == "system":
        return message("system", text[:1200])
    calls = [
        ToolCall(call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in entry.get("tool_calls") or []
    ]
    return message(entry["role"], text, *calls)
