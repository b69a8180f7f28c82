"""`fastokens` behind a check of parity, where it is installed.

It is several times faster than `tokenizers` and young, so it has to earn its place: on loading it encodes a set of
awkward texts as the reference does, or is not used. The caller compares a sample of its calls afterwards.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.uint32]
EncodeMany = Callable[[Sequence[str]], list[Ids]]

AWKWARD = (
    "",
    " ",
    "\n",
    "Hello, world! It's what they'll've said; I'M, we'D.",
    "  leading, trailing and   inner   runs \t\t of\u00a0white\u2003space\u3000 \r\n\r\n\n  \n \t\n",
    " " * 300 + "\n" * 70 + "\t" * 40 + "x",
    "0 12 345 6789 1234567890 3.14159 1e-9 0x7fff ١٢٣ 四五六 ½ ²",
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
        encode = _encoder(fastokens.Tokenizer.from_json_str(plain.decode()))
        expected, found = reference(awkward), encode(awkward)
    except Exception as error:  # whatever it can't do, the reference can
        return None, f"fastokens can't encode with this tokenizer: {type(error).__name__}"
    for index, (left, right) in enumerate(zip(expected, found, strict=True)):
        if not np.array_equal(left, right):
            return None, f"fastokens differs from tokenizers on check text {index}"
    return encode, "fastokens agrees with tokenizers"


def _encoder(tokenizer: Any) -> EncodeMany:
    def encode(texts: Sequence[str]) -> list[Ids]:
        ids, offsets = tokenizer.encode_batch_flat(list(texts), add_special_tokens=False)
        tokens = np.frombuffer(ids, dtype="<u4").astype(np.uint32, copy=False)
        ends = np.frombuffer(offsets, dtype="<u8").tolist()
        return [tokens[start:end] for start, end in pairwise(ends)]

    return encode
