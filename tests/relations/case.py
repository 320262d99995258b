"""Cases as data, and how to make one from a seed. `scenes.py` and `free.py` say what the tuples do."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

Tree = tuple[Any, ...]
"""What a participant waits for: a leaf, or something around other trees."""

WEBSOCKET, HTTP = "websocket", "http"


@dataclass
class Participant:
    """One session or request: one call of the application."""

    kind: str
    connection: int
    #: The scenes that it may take part in: pipelined requests follow each other.
    span: tuple[int, int] = (0, 1_000)
    #: How its client leaves, and after how many messages; mostly it stays.
    leaves: tuple[str, int] | None = None
    #: How its answers are sent.
    reply: str = "direct"
    #: How its call ends.
    end: str = "return"


@dataclass
class Scene:
    """Something that some participants do together."""

    kind: str
    members: list[int]
    data: dict[str, Any] = field(default_factory=dict)


@dataclass
class Case:
    """All that a run needs to be repeated."""

    seed: int
    form: str
    loop: str
    #: The protocol of each connection: "http/1", "http/2" or "http/3".
    connections: list[str]
    participants: list[Participant]
    scenes: list[Scene]
    #: Whose message is sent next, over and over; how many are sent in one turn; how many turns pass until the next.
    order: list[int]
    together: list[int]
    gaps: list[int]
    #: Connections whose bytes are cut in two, with a turn between.
    cut: list[int] = field(default_factory=list)
    #: How the event loop makes tasks.
    factory: str = "none"
    #: The implementations in Python, and who reads the connections of the native core.
    http: str = "httptools"
    ws: str = "websockets-sansio"
    reader: str = "native"
    #: Who encrypts, if anything is.
    tls: str | None = None

    def scenes_of(self, number: int) -> list[int]:
        """The scenes of a participant, in their order."""
        return [place for place, scene in enumerate(self.scenes) if number in scene.members]


FACTORIES = ("none", "none", "none", "none", "eager", "subclass", "python")
SENDING = ("direct", "direct", "direct", "task", "eager", "shield", "gather", "soon")
ENDS = ("return", "return", "return", "return", "raise", "cancelled", "leave-child")


def make_case(seed: int, loops: Sequence[str]) -> Case:
    """Return the case of a seed."""
    random = Random(seed)
    form = "free" if random.random() < 0.3 else "scenes"
    count = random.choice([2, 3, 4, 6, 8, 10])
    connections, participants = make_participants(random, random.choice([2, 3, 3, 4, 5]), count, form)
    case = Case(
        seed=seed,
        form=form,
        loop=random.choice(loops),
        connections=connections,
        participants=participants,
        scenes=[],
        order=[random.randrange(len(participants)) for _ in range(12)],
        together=[random.choice([1, 2, 3, 8]) for _ in range(4)],
        gaps=[random.choice([0, 0, 1, 1, 2, 5, 20]) for _ in range(4)],
        cut=[number for number in range(len(connections)) if random.random() < 0.15],
        factory=random.choice(FACTORIES),
        http=random.choice(["httptools", "h11"]),
        ws=random.choice(["websockets-sansio", "wsproto"]),
        reader=random.choice(["native", "native", "native", "loop"]),
    )
    for place in range(count):
        active = [number for number, one in enumerate(participants) if one.span[0] <= place < one.span[1]]
        if form == "free":
            case.scenes.append(make_free(random, active))
        else:
            case.scenes.append(make_scene(random, case, active))
    case.tls = random.choice([None, None, None, "openssl", "rustls"])
    if "http/2" in connections and random.random() < 0.4:
        case.tls = "rustls"
        case.connections = [random.choice([one, "http/3"]) if one == "http/2" else one for one in connections]
    if case.tls == "rustls":
        case.reader = "native"  # the transports of loops have OpenSSL alone
    return case


def make_participants(random: Random, count: int, scenes: int, form: str) -> tuple[list[str], list[Participant]]:
    """Connections, and who is on them."""
    connections: list[str] = []
    participants: list[Participant] = []
    while len(participants) < count:
        number = len(connections)
        kind = random.choice(["websocket"] * 3 + ["requests", "http/2"])
        if kind == "websocket":
            connections.append("http/1")
            fresh = [Participant(WEBSOCKET, number)]
        elif kind == "requests":
            connections.append("http/1")
            size = random.choice([1, 1, 2, 3])
            ends = [scenes * (place + 1) // size for place in range(size)]
            fresh = [Participant(HTTP, number, span) for span in zip([0, *ends], ends, strict=False)]
        else:
            connections.append("http/2")
            fresh = [Participant(random.choice([WEBSOCKET, HTTP]), number) for _ in range(random.choice([1, 2, 3]))]
        for one in fresh:
            one.reply = random.choice(SENDING)
            # Upstream closes the connection behind a failure, with the requests that are pipelined there.
            if form == "scenes" and (kind != "requests" or one is fresh[-1]):
                one.end = random.choice(ENDS)
            if (len(fresh) == 1 or kind == "http/2") and random.random() < 0.15:
                one.leaves = (random.choice(["close", "reset", "half-close"]), random.randrange(scenes))
        participants += fresh
    return connections, participants


# Scenes.


def make_scene(random: Random, case: Case, active: list[int]) -> Scene:
    """One relation among those who are there."""
    random.shuffle(active)
    if len(active) == 1 or random.random() < 0.45:
        return make_wait(random, case, active)
    kind = random.choice(["share", "share", "share", "crowd", "crowd", "broadcast"])
    if kind == "share":
        return make_share(random, active)
    if kind == "broadcast":
        sessions = [number for number in active if case.participants[number].kind == WEBSOCKET]
        sessions = [number for number in sessions if case.participants[number].leaves is None]
        if len(sessions) > 1:
            return Scene("broadcast", sessions[: random.randint(2, 4)], {"close": random.random() < 0.2})
    members = active[: random.randint(2, len(active))]
    data: dict[str, Any] = {
        "what": random.choice(CROWDS),
        "rounds": random.randint(1, 4),
        "pause": random.randint(0, 2),
    }
    data["victims"] = random.randint(1, len(members) - 1) if data["what"].startswith("victims") else 0
    return Scene("crowd", members, data)


CROWDS = (
    "lock",
    "semaphore",
    "queue",
    "condition",
    "barrier",
    "event",
    "victims-lock",
    "victims-semaphore",
    "victims-queue",
    "victims-condition",
)

LATE = -1
"""A time that is over when all leaves are waited for."""

LEAVES = ("future",) * 5 + ("event", "queue", "lock", "semaphore", "condition")
MAKING = ("plain", "plain", "eager", "ensure", "subclass")


def make_wait(random: Random, case: Case, active: list[int]) -> Scene:
    """One waits for a tree, and somebody acts on that."""
    waiter = case.participants[active[0]]
    special = ""
    if waiter.kind == WEBSOCKET and waiter.leaves is None and random.random() < 0.3:
        can_block = case.connections[waiter.connection] == "http/1"
        special = random.choice(["receive", "receive", "receive", "send" if can_block else "receive"])
    tree = make_tree(random, random.choice([0, 1, 1, 2, 3]), special)
    receives = ("leaf", "receive") in leaves_of(tree)
    actors = ["child", "eager-child", "soon", "later", "thread"] + ["peer"] * 5 * (len(active) > 1)
    data: dict[str, Any] = {"tree": tree, "actor": random.choice(actors)}
    data["actor_waits"] = random.choice(["poll", "future", "callback", "hold"])
    kind = random.choice(["release", "release", "fail", "cancel-leaf", "cancel", "cancel", "cancel-task", "expire"])
    if kind == "expire":
        how, delay = random.choice(
            [("timeout", 0), ("timeout", LATE), ("wait-for", 0), ("anyio-scope", 0), ("anyio-scope", LATE)]
        )
        data |= {"tree": (how, delay, tree), "actor": "nobody"}
        data["action"] = ("expire",)
    elif kind == "cancel":
        data["action"] = ("cancel", random.choice([1, 1, 1, 2]))
        if random.random() < 0.2:
            data["actor"] = "self"
    elif kind == "release":
        data["action"] = ("release", random.choice(["together", "apart"]))
    else:
        data["action"] = (kind, random.randrange(4))
    if receives and kind in ("release", "fail"):
        kinds = ["release", "close", "reset", "half-close"]
        if case.connections[waiter.connection] != "http/1":
            kinds = ["release", "close", "reset"]
        data["receives"] = random.choice([*kinds, "kick"])
    members = active[:2] if data["actor"] == "peer" else active[:1]
    return Scene("wait", members, data)


def make_tree(random: Random, depth: int, special: str = "") -> Tree:
    """Something to wait for; one leaf is special, which no two can be at once."""
    if not depth:
        return ("leaf", special or random.choice(LEAVES))
    inner = make_tree(random, depth - 1, special)
    kind = random.choice(AROUND)
    if kind == "task":
        return ("task", random.choice(MAKING), inner)
    if kind in ("timeout", "wait-for"):
        return (kind, 3600, inner)
    if kind == "anyio-scope":
        return (kind, None, inner)
    if kind == "stubborn":
        return (kind, random.choice(["swallow", "convert", "again"]), inner)
    if kind in ("gather", "group", "wait", "anyio-group"):
        others = [make_tree(random, random.randint(0, depth - 1)) for _ in range(random.choice([0, 1, 1, 2]))]
        return (kind, random.choice(MAKING), *random.sample([inner, *others], len(others) + 1))
    return (kind, inner)


AROUND = (
    "coroutine",
    "task",
    "task",
    "shield",
    "timeout",
    "wait-for",
    "gather",
    "gather",
    "group",
    "group",
    "wait",
    "stubborn",
    "finally",
    "anyio-scope",
    "anyio-group",
    "same",
)


def leaves_of(tree: Tree) -> Iterator[Tree]:
    """The leaves of a tree, in their order."""
    if tree[0] == "leaf":
        yield tree
    for part in tree[1:]:
        if isinstance(part, tuple):
            yield from leaves_of(part)


CHAIN = ("task", "eager", "shield", "timeout", "wait-for", "gather", "coroutine", "anyio-scope")


def make_share(random: Random, active: list[int]) -> Scene:
    """Several wait for the same, each in its own way; the last of them acts on it."""
    members = active[: random.randint(2, len(active))]
    waiters = members[:-1]
    what = random.choice(["future", "future", "task", "task", "flight", "flight"])
    data: dict[str, Any] = {
        "what": what,
        "making": random.choice(MAKING),
        "chains": [[random.choice(CHAIN) for _ in range(random.choice([0, 0, 0, 1, 2]))] for _ in waiters],
        "actor_waits": random.choice(["poll", "future", "callback", "hold"]),
        "late": [number for number in range(len(waiters)) if number and random.random() < 0.15],
    }
    actions = ["value", "value", "fail"] + ["cancel", "cancel-waiter"] * (what != "flight")
    data["action"] = (random.choice(actions), random.randrange(len(waiters)))
    if what == "flight":
        data["late"] = []
        for chain in data["chains"]:
            chain.insert(0, "shield")
    elif data["action"][0] == "cancel-waiter":
        data["late"] = [number for number in data["late"] if number != data["action"][1]]
    return Scene("share", members, data)


# Free programs.

FREE = (
    "future",
    "future",
    "task",
    "task",
    "flight",
    "flight",
    "lock",
    "semaphore",
    "queue",
    "put",
    "condition",
    "notify",
    "event",
    "gather",
    "group",
    "shield",
    "timeout",
    "wait-for",
    "sleep",
    "set",
    "set",
    "fail",
    "cancel",
    "cancel",
    "cancel-task",
    "cancel-self",
    "soon",
    "nested-receive",
    "given-up-receive",
    "variable",
    "other-send",
    "kick",
)


def make_free(random: Random, active: list[int]) -> Scene:
    """Programs that do as they like."""
    programs = [[make_step(random) for _ in range(random.randint(1, 4))] for _ in active]
    return Scene("free", active, {"programs": programs})


def make_step(random: Random, depth: int = 0) -> Tree:
    """One step of a free program: a name, a number that chooses the object, and what is done inside."""
    name = random.choice(FREE)
    number = random.randrange(24)
    if name == "kick" and random.random() < 0.7:
        name = "other-send"
    if name in ("gather", "group", "shield", "timeout", "wait-for", "task", "lock", "semaphore"):
        if depth < 2:
            size = random.choice([1, 2, 3]) if name in ("gather", "group") else 1
            return (name, number, *(make_step(random, depth + 1) for _ in range(size)))
        return ("future", number)
    return (name, number)


# Smaller cases.


def reductions(case: Case) -> Iterator[Case]:
    """Give cases that are smaller by one thing."""
    for place in range(len(case.scenes)):
        smaller = copy.deepcopy(case)
        del smaller.scenes[place]
        yield smaller
    for number in range(len(case.participants)):
        if number not in {member for scene in case.scenes for member in scene.members}:
            yield without_participant(case, number)
    for name, plain in PLAIN.items():
        if getattr(case, name) != plain:
            smaller = copy.deepcopy(case)
            setattr(smaller, name, plain)
            yield smaller
    for number, one in enumerate(case.participants):
        for name, value in (("leaves", None), ("reply", "direct"), ("end", "return")):
            if getattr(one, name) != value:
                smaller = copy.deepcopy(case)
                setattr(smaller.participants[number], name, value)
                yield smaller
    for place, scene in enumerate(case.scenes):
        for data in simpler(scene):
            smaller = copy.deepcopy(case)
            smaller.scenes[place].data = copy.deepcopy(data)
            yield smaller


PLAIN: dict[str, Any] = {"factory": "none", "cut": [], "reader": "native", "gaps": [1], "together": [8]}


def simpler(scene: Scene) -> Iterator[dict[str, Any]]:
    """What a scene could say in fewer words."""
    data = scene.data
    if "tree" in data:
        for tree in simpler_trees(data["tree"]):
            yield {**data, "tree": tree}
    for number, chain in enumerate(data.get("chains", ())):
        for place in range(len(chain)):
            if scene.data["what"] != "flight" or place:
                chains = copy.deepcopy(data["chains"])
                del chains[number][place]
                yield {**data, "chains": chains}
    for number, program in enumerate(data.get("programs", ())):
        for place in range(len(program)):
            programs = copy.deepcopy(data["programs"])
            del programs[number][place]
            yield {**data, "programs": programs}


def simpler_trees(tree: Tree) -> Iterator[Tree]:
    """Trees with one thing less."""
    parts = [place for place, part in enumerate(tree) if isinstance(part, tuple)]
    for place in parts:
        if not isinstance(tree[1], (int, float)) or tree[1] == 3600:
            yield tree[place]
        if len(parts) > 1:
            yield (*tree[:place], *tree[place + 1 :])
        for smaller in simpler_trees(tree[place]):
            yield (*tree[:place], smaller, *tree[place + 1 :])


def without_participant(case: Case, number: int) -> Case:
    """Leave somebody out who does nothing."""
    smaller = copy.deepcopy(case)
    del smaller.participants[number]
    for scene in smaller.scenes:
        scene.members = [member - (member > number) for member in scene.members]
    return smaller
