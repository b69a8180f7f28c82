"""What a token costs the gateway on its way out: CPU time of one core a token, from rounds to events.

    python bench/reply_text.py [--tokens 4000] [--repeats 9]

No sockets and no node: scripted rounds of 1 and of 4 tokens through the reply pipeline and the chat surface, as
`/v1/chat/completions` sends them. CPU time of the process, so other load moves it little. The embedded vocabulary.
"""

import argparse
import statistics
import time

from mainspring.gateway.generation.chat_shape import shown_of
from mainspring.gateway.routes._streams import json_event
from mainspring.hub import model_folder
from mainspring.text.bundle import Bundle
from mainspring.text.reply.parser import Parser
from mainspring.text.reply.reply import Reply

PROSE = "In winter the bees of a hive keep together in a ball, and those within change places with those without. "
CALL = (
    "<tool_call>\n<function=note>\n<parameter=text>\n"
    + PROSE * 3
    + "\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
    "</function>\n</tool_call>\n"
)
SCHEMAS = {"note": {"properties": {"text": {"type": "string"}, "days": {"type": "integer"}}}}
HEAD = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "created": 0, "model": "m", "system_fingerprint": "f"}


def seconds(bundle: Bundle, tokens: list[int], block: int, stops: list[str]) -> float:
    reply = Reply(bundle.tokenizer, ends=(), stops=stops, parser=Parser(schemas=SCHEMAS))
    sent = 0
    began = time.process_time()
    for at in range(0, len(tokens), block):
        for delta in reply.push(tokens[at : at + block]):
            shown = shown_of(delta)
            if shown is not None:
                choice = {"index": 0, "delta": shown, "logprobs": None, "finish_reason": None}
                sent += len(json_event({**HEAD, "choices": [choice]}))
    reply.finish()
    took = time.process_time() - began
    if len(reply.tokens) != len(tokens) or not sent:
        raise RuntimeError("a reply lost tokens")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    bundle = Bundle.load(model_folder("embedded"))
    print(f"{given.tokens} tokens, {given.repeats} repeats; us of CPU a token: min / median / max")
    for name, text, stops in (
        ("prose", PROSE, []), ("prose, four stop strings", PROSE, ["\nUser:", "###", "END", "</s>"]),
        ("tool calls", CALL, []),
    ):  # fmt: skip
        tokens = (bundle.tokenizer.encode_text(text).tolist() * given.tokens)[: given.tokens]
        for block in (1, 4):
            seconds(bundle, tokens, block, stops)
            found = sorted(1e6 * seconds(bundle, tokens, block, stops) / len(tokens) for _ in range(given.repeats))
            figures = " / ".join(f"{each:.1f}" for each in (found[0], statistics.median(found), found[-1]))
            print(f"  {name}, rounds of {block}: {figures}")


if __name__ == "__main__":
    main()
