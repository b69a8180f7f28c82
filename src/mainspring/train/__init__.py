"""The embedded scorer: data preparation, training, calibration, evaluation, model card. The writer: `distill`.

    config      one TOML file -> one frozen record
    sources     published data sets -> conversations with the licence of each
    content/    the behaviors: persona traits, rules over the text, constructed edits, phrasings of all of them
    dataset     conversations x behaviors -> token arrays, made by the bundle that serves; splits
    network     a padded, batched, differentiable forward of the served network
    batches     which rows make step n, from the seed and n alone
    updates     what every loop does: optimisers, checkpoints, resuming, looks
    loop        the scorer's part of it
    metrics, calibrate, evaluate, familiarity, card    what the marks say

The loop itself needs numpy and torch; preparation needs the text room.
"""
