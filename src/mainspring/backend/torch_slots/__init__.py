"""Slots on the CPU, fp32: forward of prompts and rounds, the drafting head, K/V buffers that checkpoints share."""
