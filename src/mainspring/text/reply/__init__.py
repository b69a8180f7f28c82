"""What a model writes, as it comes: tokens -> text -> reasoning, content and tool calls; cut at one place for all."""
