"""`Status` from the core's state and the book of links: true to a report's age, cheap enough to ask each second."""
