"""The corpus of the exactness tests, as tests/common/corpus.rs makes it."""
import pathlib

HERE = pathlib.Path(__file__).parent
CODE_CHUNKS, UNICODE_CHUNKS, CHUNK_BYTES = 72, 16, 16 << 10
LANGUAGES = "rust python javascript typescript c cpp go java shell sql".split()
BLOCKS = [
    (0x00, 0x7F), (0x80, 0x24F), (0x250, 0x36F), (0x370, 0x52F), (0x531, 0x5F4), (0x600, 0x6FF),
    (0x900, 0x97F), (0xE01, 0xE5B), (0x1E00, 0x1FFF), (0x2000, 0x22FF), (0x2460, 0x27BF), (0x3000, 0x30FF),
    (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFFEF), (0x1D400, 0x1D7FF), (0x1F300, 0x1F64F), (0x0, 0x10FFFF),
]
SNIPPETS = [
    " ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2028", "'s", "'LL", "'\u017f", "e\u0301",
    "\U0001f469\u200d\U0001f4bb", "1\ufe0f\u20e3", "\u1e9b\u0323", "ﬁ½Ⅷ",
]
MASK = (1 << 64) - 1
ASCII_UPPER = {c: c - 32 for c in range(ord("a"), ord("z") + 1)}


class Random:
    """SplitMix64."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, bound):
        return self.next() % bound

    def character(self):
        low, high = BLOCKS[self.below(len(BLOCKS))]
        number = low + self.below(high - low + 1)
        return "\ufffd" if 0xD800 <= number <= 0xDFFF else chr(number)

    def word(self):
        return "".join(chr(ord("a") + self.below(26)) for _ in range(1 + self.below(12)))


def mutated(line, random):
    kind = random.below(16)
    if kind == 0:
        return "".join(chr(ord("0") + random.below(10)) if c in "0123456789" else c for c in line) + "\n"
    if kind == 1:
        return " " * random.below(9) + line + "\n"
    if kind == 2:
        return "\t" * random.below(4) + line + "\n"
    if kind == 3:
        return line + random.word() + "\n"
    if kind == 4:
        return line + "".join(random.character() for _ in range(1 + random.below(4))) + "\n"
    if kind == 5:
        return line.translate(ASCII_UPPER) + "\n"
    if kind == 6:
        return line
    if kind == 7:
        return line + "\r\n"
    if kind == 8:
        return line + " " * random.below(20) + "\n"
    if kind == 9:
        return line + "\n" + line + "\n"
    return line + "\n"


def code_chunk(seeds, random):
    parts, size = [], 0
    while size < CHUNK_BYTES:
        lines = seeds[random.below(len(seeds))]
        start = random.below(len(lines))
        count = 1 + random.below(12)
        for line in lines[start : start + count]:
            parts.append(mutated(line, random))
            size += len(parts[-1].encode())
    return "".join(parts)


def unicode_chunk(random):
    parts, size = [], 0
    while size < CHUNK_BYTES:
        kind = random.below(8)
        if kind == 0:
            parts.append(SNIPPETS[random.below(len(SNIPPETS))])
        elif kind == 1:
            parts.append(random.word())
        else:
            parts.append(random.character())
        size += len(parts[-1].encode())
    return "".join(parts)


def chunks():
    seeds = [(HERE / "seeds" / f"{name}.txt").read_bytes().decode().split("\n") for name in LANGUAGES]
    yield from (code_chunk(seeds, Random(i)) for i in range(CODE_CHUNKS))
    yield from (unicode_chunk(Random(1000 + i)) for i in range(UNICODE_CHUNKS))


def fnv(values):
    """FNV-1a, 64 bits, over whole numbers as four bytes each."""
    h = 0xCBF29CE484222325
    for value in values:
        for byte in value.to_bytes(4, "little"):
            h = ((h ^ byte) * 0x100000001B3) & MASK
    return f"{h:016x}"
