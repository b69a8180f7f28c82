"""The model card of a writer, from its report."""

from pathlib import Path
from typing import Any

HEAD = """# Mainspring's embedded writer

A small hybrid language model (GatedDeltaNet, full attention every fourth layer, a drafting head) distilled from
SmolLM2-135M-Instruct (Hugging Face, Apache-2.0). It writes fluent, simple English, keeps to its chat template and ends
its replies. **It knows nothing**: what it states as fact is mostly made up. It is there to show streaming, caching and
speculation on a machine without a network, and for tests. It is no assistant.

| | |
|---|---|
"""
TAIL = """
**Made by** `mainspring train distill configs/writer.toml`, **measured by** the same command with `--report`: the stored
4-bit weights in fp32 on a CPU. Decision and sizes: docs/decisions/0020-writer.md; how to make it: docs/writer.md.

## Data

Prompts: templates filled from word lists; short first user turns of GPTeacher (MIT), Arena-Hard (Apache-2.0), HaluEval,
FActScore, LLMBar and tau-bench (MIT) and Taskmaster-3 and -4 (Google, CC BY 4.0); questions that the teacher made up.
All replies are the teacher's. Held out: 8 % of source prompts and filled templates, six templates whole.

## Limits

English only. Short chats of a turn or two. No facts, no arithmetic, no code, no tools. Nothing was done to make it safe
beyond what its teacher brought along.
"""
ROWS = (
    (
        "held-out prompts, answered at temperature {temperature}, top-p {top_p}, frequency penalty {frequency_penalty}",
        "prompts",
        "{:.0f}",
    ),
    ("ended by themselves within {max_tokens} tokens", "stopped", "{:.1%}"),
    ("distinct-4 of the replies, mean", "distinct_4", "{:.3f}"),
    ("tokens a reply, mean", "tokens", "{:.0f}"),
    ("teacher's loss on the replies, nats a token, mean", "teacher_loss", "{:.2f}"),
    ("the same, median", "teacher_loss_median", "{:.2f}"),
    ("held-out replies of the teacher: bits a byte, writer", "writer_bits_per_byte", "{:.3f}"),
    ("the same, teacher", "teacher_bits_per_byte", "{:.3f}"),
    ("perplexity a teacher token, writer", "writer_perplexity_per_teacher_token", "{:.2f}"),
    ("the same, teacher", "teacher_perplexity", "{:.2f}"),
)


def write_card(folder: Path, report: dict[str, Any]) -> None:
    """`folder/README.md`."""
    marks, sampling = report["marks"], report["sampling"]
    rows = [f"| {what.format(**sampling)} | {form.format(marks[name])} |" for what, name, form in ROWS if name in marks]
    trained = marks.get("training", {})
    if "agreement" in trained:
        rows.append(f"| drafts that are the model's own likeliest token | {trained['agreement']:.1%} |")
    samples = [_sample(sample) for sample in report["samples"]]
    text = HEAD + "\n".join(rows) + "\n" + TAIL + "\n## Ten replies, as they came\n\n" + "\n\n".join(samples) + "\n"
    (folder / "README.md").write_text(text, "utf-8")


def _sample(sample: dict[str, Any]) -> str:
    end = "" if sample["stopped"] else " [cut]"
    quoted = "\n".join(f"> {line}".rstrip() for line in sample["reply"].split("\n"))
    return f"Seed {sample['seed']}: *{' '.join(sample['prompt'].split())}*\n\n{quoted}{end}"
