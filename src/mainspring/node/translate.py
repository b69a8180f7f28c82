"""Wire records to the engine's arrays and the agenda's nouns, and results back. Pure functions.

`Part` -> `engine.Work` (u32 bytes to int64 arrays once, no copy before), `Work` -> `core.nouns.Pass`; label logits of a
pass -> the one f32 string of `Done`, part after part; an exception -> a `FailReason`. Token ids beyond the vocabulary,
label ids out of range and views beyond the context are `bad_work` here, before the engine sees them.
"""
