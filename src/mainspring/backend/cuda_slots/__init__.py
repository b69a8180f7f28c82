"""Slots on an NVIDIA GPU: a round is one recorded graph and one readback. Decided in ADR 24.

slots    the protocol: slots, prompts, checkpoints, rounds; which results belong to whom
flights  rounds under way: launched before the one before is read, taken or thrown away
runner   a round as one forward, recorded by bucket of shapes
rounds   that forward: drafts, rows, choice, walk
trunk    the network over a round's rows, and over a piece of prompt
head     the drafting head over both
arrays   what stays on the device from round to round
slot     what a slot and a checkpoint are on the host
buffers  K/V rows that slots and checkpoints share
"""
