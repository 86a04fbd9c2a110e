"""The cases that every engine runs, and their one-line form: kind sequences prompt steps.

prompt  1 512 0      tokens/s of computing a prompt of 512
decode 16 128 48     tokens/s, all sequences together, of 48 greedy steps after prompts of 128
"""

from typing import NamedTuple


class Case(NamedTuple):
    name: str
    kind: str
    sequences: int
    prompt: int
    steps: int

    def line(self):
        return f"{self.kind} {self.sequences} {self.prompt} {self.steps}"


def parse(line):
    kind, sequences, prompt, steps = line.split()
    return Case(line.strip(), kind, int(sequences), int(prompt), int(steps))


CASES = [
    Case("decode, 1 sequence, depth 16", "decode", 1, 16, 96),
    Case("decode, 1 sequence, depth 1,024", "decode", 1, 1024, 64),
    Case("decode, 1 sequence, depth 4,096", "decode", 1, 4096, 48),
    Case("decode, 16 sequences, depth 128", "decode", 16, 128, 48),
    Case("decode, 32 sequences, depth 128", "decode", 32, 128, 32),
    Case("prompt of 512", "prompt", 1, 512, 0),
    Case("prompt of 2,048", "prompt", 1, 2048, 0),
]
