"""The embedded writer: a small hybrid model distilled from SmolLM2-135M-Instruct, on text that the teacher writes.

    config       one TOML file -> one frozen record
    packed       the teacher's file in parts that can be carried, and back
    teacher      the teacher's forward, whole texts or one token a row
    vocabulary   teacher tokens as runs of student tokens; both chat layouts
    prompts      what the teacher is asked; which are held out
    generate     the teacher writes: rows of a batch are streams that are refilled
    corpus       texts kept, cut into token arrays and batches
    initial      the student's first weights, from the teacher's
    student      what is trained: network, MTP head, rounding
    losses       distributions, states, two tokens on
    run          the training loop's part that is this model's own
    pipeline     stages in a run folder
    report       marks and samples of a written model, and its card

Decision and sizes: docs/decisions/0020-writer.md.
"""
