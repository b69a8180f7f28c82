"""What a round of generation is, on the device: from what is known of a slot to rows, and from chosen tokens back.

Every slot has WORDS int64 that stay on the device from round to round:

    ANCHOR  its last token, not forwarded yet        LENGTH  rows of K/V that stand
    KEPT    rows of its last round that stand        SIDE    where those rows' (k, u, e^g) and inputs are
    INDEX   tokens of the reply                      LEFT    tokens that may still come; 0: its lane does nothing
    READ    rows of the drafting head's K/V          WAITING rows of the trunk that the head has not read
    TURN    where those rows are                     DRAFTS  1 where the drafting head is kept up

A round has N lanes of R rows: a slot, its anchor and its drafts. `plan` makes of words and drafts a line of PLAN int32
a lane (slot, live rows, kept, side, first position) and the rows' tables; `walk` follows the chosen tokens as far as
drafts stand and writes words and an outcome of OUTCOME + R int32: emitted, accepted, stopped, drafted, fault, tokens.
"""

WORDS = 16
ANCHOR, LENGTH, KEPT, SIDE, INDEX, LEFT, READ, WAITING, TURN, DRAFTS = range(10)
REQUEST = 3
"""Leading words of a lane's request: slot, drafts asked for, 1 where the device drafts them; R of the host's follow."""
PLAN = 8
OUTCOME = 8
NOT_FINITE, NONE_ALLOWED = -1, -2
"""In place of a chosen token."""
MOST_STOPS = 64
"""Stop ids of a slot."""
