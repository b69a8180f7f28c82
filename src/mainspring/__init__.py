"""Mainspring serves hybrid linear-attention language models on hardware its users own."""

__version__ = "0.1.0"
