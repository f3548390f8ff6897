"""Prompts of three kinds, drawn from fixed texts so that every run sends the same requests."""

from __future__ import annotations

import random

PROSE = (
    "The harbour was quiet when the first boats came in before dawn. Fishermen spoke in low voices "
    "and counted the boxes on the quay. An old woman who sold coffee from a cart remembered the "
    "winter when the whole bay had frozen. In that year the ferries stopped for six weeks, and "
    "letters were carried over the ice on foot. Her grandson did not believe the story, but he "
    "liked to hear it. Behind the warehouses a road climbed towards the lighthouse, which had been "
    "automatic for thirty years. Tourists walked up in summer to see the sunset, and the keeper's "
    "house was now a small museum of instruments, maps and photographs. One of them showed the "
    "town before the great fire, with wooden houses close together and a church whose tower "
    "leaned to the west. Nobody could say why it leaned, although every family had an explanation."
)
CODE = (
    "def read_table(path, separator=','):\n    rows = []\n    with open(path) as file:\n"
    "        header = next(file).strip().split(separator)\n        for line in file:\n"
    "            cells = line.strip().split(separator)\n"
    "            rows.append(dict(zip(header, cells)))\n    return rows\n\n\n"
    "class Queue:\n    def __init__(self, limit):\n        self.limit = limit\n"
    "        self.items = []\n\n    def put(self, item):\n"
    "        if len(self.items) >= self.limit:\n            raise OverflowError('queue is full')\n"
    "        self.items.append(item)\n\n    def get(self):\n        return self.items.pop(0)\n\n\n"
    "def mean(values):\n    total = 0.0\n    for value in values:\n        total += value\n"
    "    return total / len(values)\n\n\ndef variance(values):\n    centre = mean(values)\n"
    "    return mean([(value - centre) ** 2 for value in values])\n"
)
LISTS = (
    "Shopping list for the week:\n1. Two loaves of bread\n2. Six eggs\n3. A litre of milk\n"
    "4. Four apples\n5. Butter\n6. Rice\n7. A bag of carrots\n8. Black tea\n9. Olive oil\n"
    "Capitals:\n- France: Paris\n- Spain: Madrid\n- Italy: Rome\n- Norway: Oslo\n"
    "- Greece: Athens\n- Austria: Vienna\n- Portugal: Lisbon\n- Poland: Warsaw\n"
    "Steps to plant a tree:\n1. Dig a hole twice as wide as the roots.\n"
    "2. Loosen the soil at the bottom.\n3. Set the tree upright.\n4. Fill the hole.\n"
    "5. Water it well.\n6. Cover the ground with leaves.\n"
)
KINDS = ("prose", "code", "list")
_TEXTS = {"prose": PROSE, "code": CODE, "list": LISTS}
_ASKS = {
    "prose": "Continue this story",
    "code": "Continue this Python module",
    "list": "Continue these lists",
}


def prompt(seed: str) -> tuple[str, str]:
    """Return (kind, text) of about 30 to 75 tokens; the same seed gives the same prompt."""
    rng = random.Random(seed)
    kind = rng.choice(KINDS)
    parts = _TEXTS[kind].split(". " if kind == "prose" else "\n")
    joint = ". " if kind == "prose" else "\n"
    wanted = rng.randint(100, 220) if kind == "prose" else rng.randint(70, 150)
    start = rng.randrange(len(parts))
    chosen = ""
    for offset in range(len(parts)):
        chosen += parts[(start + offset) % len(parts)] + joint
        if len(chosen) >= wanted:
            break
    return kind, f"{_ASKS[kind]} (number {rng.randrange(10_000)}):\n\n{chosen}"
