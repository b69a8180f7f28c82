"""What the scorer is trained on, in words: persona traits, rules over the text, constructed edits, their phrasings."""
