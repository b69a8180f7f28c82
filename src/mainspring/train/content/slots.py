"""Random values for the slots in sentences and small conversations."""

import random

from mainspring.train.content import kinds as k


def values(rng: random.Random) -> dict[str, str]:
    """One value a slot; names, words and numbers differ from draw to draw."""
    word, other = rng.sample(k.WORDS, 2)
    name, second = rng.sample(k.NAMES, 2)
    tld = rng.choice(k.TLDS)
    return {
        "url": rng.choice(
            (
                f"https://www.{word}{other}.{tld}/{rng.choice(k.WORDS)}",
                f"https://{word}-{other}.{tld}/{rng.choice(k.TOPICS).lower()}/{rng.randint(10, 9999)}",
                f"www.{word}{rng.randint(1, 99)}.{tld}",
                f"http://{name.lower()}.{tld}/docs/{word}.html",
            )
        ),
        "phone": f"{rng.randint(200, 999)}-{rng.randint(100, 999)}-{rng.randint(1000, 9999)}",
        "email": f"{rng.choice((name.lower(), word, 'info', 'help'))}@{other}{rng.choice(('', 'mail', 'group'))}.{tld}",
        "code": f"{word.upper()[:5]}{rng.randint(10, 99)}",
        "name": name,
        "name2": second,
        "num": str(rng.randint(12, 97)),
        "day": str(rng.randint(3, 28)),
        "year": str(rng.randint(1985, 2023)),
        "month": rng.choice(k.MONTHS),
        "city": rng.choice(k.CITIES),
        "company": rng.choice(k.COMPANIES),
        "product": rng.choice(k.PRODUCTS),
        "topic": rng.choice(k.TOPICS),
        "word": word,
    }
