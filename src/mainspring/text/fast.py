"""`fastokens` behind a check of parity, where it is installed.

It is several times faster than `tokenizers` and young, so it has to earn its place: on loading it encodes a set of
awkward texts as the reference does, or is not used. The caller compares a sample of its calls afterwards.

It scans with a regular expression that stands in the document twice as fast as with the one that `ByteLevel` brings
along, so the latter is written out (`written_out`), the splitting of digits with it. The reference keeps the document
as it is, so the check of parity covers the rewriting too.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.uint32]
EncodeMany = Callable[[Sequence[str]], list[Ids]]

CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
BYTE_LEVEL = CONTRACTIONS + r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""What `ByteLevel` splits with."""
BYTE_LEVEL_DIGITS = CONTRACTIONS + r"|\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?=\p{N})|\s+(?!\S)|\s+"
"""The same behind `Digits`, which sets each digit apart first: white space before a digit then ends its piece, so it
stays whole."""

AWKWARD = (
    "",
    " ",
    "\n",
    "Hello, world! It's what they'll've said; I'M, we'D.",
    "  leading, trailing and   inner   runs \t\t of\u00a0white\u2003space\u3000 \r\n\r\n\n  \n \t\n",
    " " * 300 + "\n" * 70 + "\t" * 40 + "x",
    "0 12 345 6789 1234567890 3.14159 1e-9 0x7fff ١٢٣ 四五六 ½ ²",
    "a  1\t2 \n 3\u00a0\u00a04 '5's '6 b7c 8'll - 9 -0\n\n10  x  ½  Ⅻ   ",
    "def f(x: int) -> dict[str, float]:\n    return {'a': x ** 2, \"b\": [x << 1, ~x]}  # noqa\n",
    "naïve café Ångström; e\u0301 and é; ﬁ ﬂ; ǅ; İstanbul \u0131I; straße STRASSE",
    "한국어 텍스트, 日本語のテキスト、中文文本。ไทย ภาษา हिन्दी नमस्ते العربية مَرْحَبًا עִבְרִית ქართული",
    "😀👍🏽👩‍👩‍👧‍👦🏳️‍🌈 🇩🇪 e\u0301\u0327\u0308 Z̷͇̀a̸l̶g̷o̴ \u200b\u200d\u2060\ufeff",
    "\x00\x01\x1f\x7f\x85\u2028\u2029\ufdd0\ufffe\uffff\U0010ffff\U000e0001\ue000",
    "<|im_start|>system\n<|im_end|><|endoftext|></s><s>[INST] <think>\n</think><tool_call></tool_call>",
    'https://example.org/a/b?c=d&e=%20#f user@example.org C:\\dir\\file.txt --flag="v" $HOME `x` ~/.rc',
    '{"key": "va\\"lue\\n", "n": [1, 2.5e10, null, true], "ü": "\\u00fc"}',
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!!!!!!!!......",
    "thiscamelCaseANDSHOUTYsnake_case-kebab-case'quoted'“curly”—dash…ellipsis",
)


def open_fast(plain: bytes, reference: EncodeMany, awkward: Sequence[str]) -> tuple[EncodeMany | None, str]:
    """The fast encoder, or None and the reason why it is not used."""
    try:
        import fastokens
    except ImportError:
        return None, "fastokens is not installed"
    try:
        encode = _encoder(fastokens.Tokenizer.from_json_str(written_out(plain).decode()))
        expected, found = reference(awkward), encode(awkward)
    except Exception as error:  # whatever it can't do, the reference can
        return None, f"fastokens can't encode with this tokenizer: {type(error).__name__}"
    for index, (left, right) in enumerate(zip(expected, found, strict=True)):
        if not np.array_equal(left, right):
            return None, f"fastokens differs from tokenizers on check text {index}"
    return encode, "fastokens agrees with tokenizers"


def written_out(plain: bytes) -> bytes:
    """The document with one `Split` in place of what `ByteLevel`, or `Digits` and `ByteLevel`, split: the same pieces.
    Any other is left as it is."""
    document: dict[str, Any] = msgspec.json.decode(plain)
    found = document.get("pre_tokenizer")
    steps: Any = found.get("pretokenizers") if isinstance(found, dict) and found.get("type") == "Sequence" else [found]
    pattern = _pattern(steps) if isinstance(steps, list) and all(isinstance(step, dict) for step in steps) else None
    if pattern is None:
        return plain
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    steps = [split, {**steps[-1], "use_regex": False}]
    return msgspec.json.encode({**document, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}})


def _pattern(steps: Sequence[dict[str, Any]]) -> str | None:
    last = steps[-1] if steps else {}
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space") is not False or not last.get("use_regex", True):
        return None
    if len(steps) == 1:
        return BYTE_LEVEL
    single = steps[0].get("type") == "Digits" and steps[0].get("individual_digits") is True
    return BYTE_LEVEL_DIGITS if len(steps) == 2 and single else None


def _encoder(tokenizer: Any) -> EncodeMany:
    def encode(texts: Sequence[str]) -> list[Ids]:
        ids, offsets = tokenizer.encode_batch_flat(list(texts), add_special_tokens=False)
        tokens = np.frombuffer(ids, dtype="<u4").astype(np.uint32, copy=False)
        ends = np.frombuffer(offsets, dtype="<u8").tolist()
        return [tokens[start:end] for start, end in pairwise(ends)]

    return encode
