#!/usr/bin/env python3
"""The main loop of every sm_90 kernel, read from its machine code: what it loads and how wide, what runs on tensor cores,
what waits. Gates: weight and KV streams are loaded 16 bytes at a time, what is meant for tensor cores runs there, and
nothing goes through local memory. --table prints a table in Markdown."""

import re
import sys
from collections import Counter

import cuobjdump

# Kernels by name, and what must be in their main loops.
WEIGHTS = "LDG.128"  # straight from global memory into registers
RING = "LDGSTS.128"  # cp.async into shared memory
TENSOR = "HMMA"
PLANNED = [
    (r"SkinnyKernel", {WEIGHTS, TENSOR}),
    (r"TiledKernel", {TENSOR}),
    (r"DecodeKernel", {RING, TENSOR}),
    (r"PrefillKernel", {RING, TENSOR}),
    (r"Latent\w*Kernel", {RING, TENSOR}),
]
COLUMNS = ["LDG.128", "LDG narrower", "LDGSTS.128", "LDGSTS narrower", "LDSM", "LDS", "HMMA", "FFMA", "MUFU", "BAR", "local"]


def kind(opcode):
    """The column of an instruction; None: of no interest."""
    name = opcode.split(".")[0]
    if name in ("LDG", "LDGSTS"):
        return f"{name}.128" if ".128" in opcode else f"{name} narrower"
    if name in ("LDL", "STL"):
        return "local"
    if name in ("LDSM", "LDS", "HMMA", "FFMA", "MUFU", "BAR"):
        return name
    return None


def main_loop(code):
    """The smallest loop with at least half of the kernel's work in it; the whole kernel where there is none."""
    weights = {"HMMA": 8, "LDG.128": 4, "LDGSTS.128": 4, "FFMA": 1, "LDG narrower": 1}

    def work(body):
        return sum(weights.get(kind(opcode), 0) for _, opcode, _ in body)

    bodies = [[i for i in code if target <= i[0] <= address] for address, _, target in code if target is not None and target < address]
    total = work(code)
    return min((body for body in bodies if 2 * work(body) >= total), key=len, default=code)


def main():
    args = cuobjdump.arguments(__doc__)
    found = dict(cuobjdump.instructions(args, "sm_90"))
    names = cuobjdump.short_names(found)
    rows, bad = [], []
    for mangled, code in found.items():
        name = names[mangled]
        loop = main_loop(code)
        counts = Counter(kind(opcode) for _, opcode, _ in loop)
        rows.append((name, len(loop), counts))
        if any(kind(opcode) == "local" for _, opcode, _ in code):
            bad.append(f"{name} goes through local memory")
        # A stream may be loaded ahead of the loop that consumes it: the whole kernel counts.
        everywhere = Counter(kind(opcode) for _, opcode, _ in code)
        for pattern, planned in PLANNED:
            if re.match(pattern, name):
                bad += [f"{name} has no {column}" for column in sorted(planned) if everywhere[column] == 0]
    if args.table:
        print("| kernel | loop | " + " | ".join(COLUMNS) + " |\n|---|" + "---:|" * (len(COLUMNS) + 1))
        for name, length, counts in sorted(rows, key=lambda row: row[0]):
            print(f"| {name} | {length} | " + " | ".join(str(counts[c] or "") for c in COLUMNS) + " |")
    for pattern, _ in PLANNED:
        if not any(re.match(pattern, name) for name, _, _ in rows):
            bad.append(f"no kernel is called {pattern}")
    print(f"{len(rows)} kernels read")
    if bad:
        print("\n".join(bad))
        sys.exit(1)


main()
