"""What the teacher is asked: filled templates, and short first user turns of the shipped conversations.

A prompt's split follows from a hash of what it was made of. Templates marked HELD are test prompts whole: nothing of
their form is trained on. The teacher's own user turns (`generate`) come on top and are for training alone.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from mainspring.train.content.examples import rng_for
from mainspring.train.sources import conversations
from mainspring.train.splits import TEST, TRAIN, text_split

MOST_CHARS = 240
PER_TEMPLATE = 300
# Asks for what no model of this size can do; replies would teach it to pretend.
_BEYOND = re.compile(r"toolformer|python|java|code|html|css|sql|function|equation|calculat|algorithm|[={}<>]", re.I)

_THINGS = (
    "a red kite, a lighthouse, an old clock, a paper boat, a small dragon, a lost key, a talking cat, a stone bridge, "
    "a train at night, a garden in winter, a broken violin, a brave mouse, a wooden box, a blue door, a snowman, "
    "a kind robot, a sleepy owl, a busy bakery, a quiet library, a school play, a fishing village, a mountain hut, "
    "a rainy market, a hidden letter, a wise turtle, a shy fox, a summer storm, a hot air balloon, a tiny island, "
    "a music box, a lost dog, a new bicycle, a haunted attic, a honey bee, an apple tree, a night sky, a long river"
)
_TOPICS = (
    "photosynthesis, gravity, the water cycle, honey bees, volcanoes, the moon, friendship, democracy, "
    "a balanced diet, recycling, electricity, the heart, sleep, rainbows, earthquakes, the internet, money, trees, "
    "music, the ocean, "
    "bread, teamwork, patience, vaccines, magnets, dreams, history, mathematics, poetry, exercise, clouds, dinosaurs, "
    "languages, maps, bridges, coffee, the seasons, whales, computers, chess, gardening, cooking, painting, stars"
)
_SKILLS = (
    "ride a bicycle, learn a new language, bake bread, save money, write a letter, stay healthy, make new friends, "
    "study for an exam, plan a trip, grow tomatoes, clean a kitchen, sleep better, train a dog, tell a good story, "
    "speak in public, pack a suitcase, learn to swim, choose a book, fix a flat tire, make a good cup of tea, "
    "draw a face, organize a desk, write a poem, cook rice, prepare for an interview, calm down, manage time, "
    "start running, take better photos, host a dinner, learn the guitar, paint a wall, use less energy, be on time"
)
_PLACES = (
    "a beach, a forest, a big city, a small village, a museum, a farm, a train station, a mountain, a park, a school, "
    "a hospital, a castle, a desert, a harbor, a library, a supermarket, an airport, a zoo, a theater, a river bank"
)
_FEELINGS = (
    "happy, sad, nervous before a test, tired after work, lonely, angry with a friend, bored, excited about a trip, "
    "worried about money, proud, homesick, stressed, afraid of flying, jealous, grateful, disappointed"
)
_WORDS = (
    "brave, river, gentle, curious, market, silver, promise, winter, honest, garden, shadow, bright, journey, simple, "
    "quiet, hungry, careful, thunder, window, friendly, ancient, golden, whisper, clever, gather, hope, island"
)
_SENTENCES = (
    "The cat sat on the warm stone.|She forgot her umbrella at home.|We walked to the river in the evening.|"
    "The train was late again.|My brother likes to cook soup.|It rained for three days.|The shop closes at six.|"
    "He could not find his glasses.|They planted a tree behind the house.|The children laughed at the clown.|"
    "I have never seen snow before.|The bread smelled wonderful.|Our teacher told us a strange story.|"
    "The dog barked at the moon.|Nobody answered the phone."
)


def _list(text: str, by: str = ", ") -> tuple[str, ...]:
    return tuple(text.split(by))


WORDS = {
    "thing": _list(_THINGS),
    "other": _list(_THINGS),
    "topic": _list(_TOPICS),
    "skill": _list(_SKILLS),
    "place": _list(_PLACES),
    "feeling": _list(_FEELINGS),
    "word": _list(_WORDS),
    "sentence": _list(_SENTENCES, "|"),
}
TEMPLATES = (
    "Write a short story about {thing}.",
    "Write a short story about {thing} and {other}.",
    "Tell me a story about {thing} in {place}.",
    "Write a poem about {thing}.",
    "Write a short poem about {topic}.",
    "Write a bedtime story with {thing} in it.",
    "Describe {place} in the early morning.",
    "Describe {thing} in three sentences.",
    "What would {thing} say if it could speak?",
    "Begin a story that takes place in {place}.",
    "What is {topic}?",
    "What is {topic}? Explain it to a child.",
    "Explain {topic} in simple words.",
    "Tell me something about {topic}.",
    "Why is {topic} important?",
    "Can you tell me about {topic}?",
    "Write a short paragraph about {topic}.",
    "Give me three facts about {topic}.",
    "What do you find interesting about {topic}?",
    "I have to give a talk about {topic}. How should I begin?",
    "How do I {skill}?",
    "How can I {skill}?",
    "Give me three tips to {skill}.",
    "I want to {skill}. Where do I start?",
    "What is the best way to {skill}?",
    "Explain step by step how to {skill}.",
    "Why is it hard to {skill}?",
    "My friend wants to {skill}. What should I tell her?",
    "What do I need to {skill}?",
    "I am {feeling}. What should I do?",
    "I feel {feeling}.",
    "Hello! I am {feeling} today.",
    "How can I help a friend who is {feeling}?",
    "Write a kind message to someone who is {feeling}.",
    "Write a letter to a friend about {place}.",
    "What can I do in {place}?",
    "What do people see in {place}?",
    "Write a sentence with the word {word}.",
    "What does the word {word} mean?",
    "Use the word {word} in a short dialogue.",
    "Give me a synonym for {word} and use it in a sentence.",
    "Write two sentences that use the words {word} and {topic}.",
    "Rewrite this in other words: {sentence}",
    "Make this sentence more polite: {sentence}",
    "What happens next? {sentence}",
    "Continue the story: {sentence}",
    "Turn this into a question: {sentence}",
    "Write an email that begins with: {sentence}",
    "Put this in the past tense: {sentence}",
    "Who are you?",
    "Hi!",
    "Hello, how are you?",
    "Thank you for your help.",
    "Can you help me?",
)
HELD = (
    "Tell me a fairy tale about {thing} and {other}.",
    "I know nothing about {topic}. Can you explain it?",
    "What mistakes do people make when they {skill}?",
    "What would you say to somebody who is {feeling}?",
    "Imagine {place} at night. What do you hear?",
    "Finish this story in a few sentences: {sentence}",
)


class Prompt(NamedTuple):
    text: str
    split: int


def filled(template: str, most: int = PER_TEMPLATE) -> list[str]:
    """Distinct fillings in a fixed order, at most `most`."""
    rng, found = rng_for("writer", template), dict[str, None]()
    for _ in range(2 * most):
        words = {name: rng.choice(choices) for name, choices in WORDS.items()}
        if words["other"] != words["thing"] and len(found) < most:
            found[template.format(**words)] = None
    return list(found)


def prompts(sources: Path, *, share: float = 1.0) -> list[Prompt]:
    """All of them, each text once; `share` of the shipped conversations are looked at."""
    found: dict[str, int] = {}
    for template in TEMPLATES:
        for text in filled(template):
            found.setdefault(text, text_split(f"writer/{text}") if "{" in template else TRAIN)
    for template in HELD:
        found |= dict.fromkeys(filled(template, most=60), TEST)
    for text, text_id in _first_turns(sources, share) if share > 0 else ():
        found.setdefault(text, text_split(text_id))
    return [Prompt(text, split) for text, split in found.items()]


def bare(text: str) -> str:
    """Its words alone: two prompts that differ in nothing else are one."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def withheld(found: Sequence[Prompt]) -> frozenset[str]:
    """The bare texts that nothing is trained on: some differ from a training prompt in a full stop, and a teacher that
    makes up prompts comes upon others."""
    return frozenset(bare(prompt.text) for prompt in found if prompt.split != TRAIN)


def _first_turns(sources: Path, share: float) -> Iterator[tuple[str, str]]:
    for found in conversations(sources):
        if rng_for("writer", found.text_id).random() >= share:
            continue
        first = next((m for m in found.span.input if m.role == "user"), None)
        text = first.text.strip() if first is not None else ""
        if 8 <= len(text) <= MOST_CHARS and text.isascii() and not _BEYOND.search(text):
            yield text, found.text_id
