#!/usr/bin/env python3
"""The main loop of every sm_90 kernel, read from its machine code: what it loads and how wide, what runs on tensor cores,
what waits. Gates: weight and KV streams are loaded 16 bytes at a time, what is meant for tensor cores runs there, and
nothing goes through local memory. --table prints a table in Markdown."""

import argparse
import os
import re
import subprocess
import sys
from collections import Counter

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


def functions(cuobjdump, library):
    """Yields (mangled name, [(address, opcode, branch target or None)])."""
    process = subprocess.Popen([cuobjdump, "-sass", "-arch", "sm_90", library], stdout=subprocess.PIPE, text=True)
    name, code = None, []
    for line in process.stdout:
        if match := re.match(r"\s*Function : (\S+)", line):
            if name:
                yield name, code
            name, code = match.group(1), []
        elif match := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s*([^;]*);", line):
            target = None
            if match.group(2).split(".")[0] == "BRA" and (to := re.search(r"0x([0-9a-f]+)\s*$", match.group(3))):
                target = int(to.group(1), 16)
            code.append((int(match.group(1), 16), match.group(2), target))
    if name:
        yield name, code
    assert process.wait() == 0, f"{cuobjdump} failed"


def main_loop(code):
    """The smallest loop with at least half of the kernel's work in it; the whole kernel where there is none."""
    weights = {"HMMA": 8, "LDG.128": 4, "LDGSTS.128": 4, "FFMA": 1, "LDG narrower": 1}

    def work(body):
        return sum(weights.get(kind(opcode), 0) for _, opcode, _ in body)

    bodies = [[i for i in code if target <= i[0] <= address] for address, _, target in code if target is not None and target < address]
    total = work(code)
    return min((body for body in bodies if 2 * work(body) >= total), key=len, default=code)


def short_names(names):
    out = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.split("\n")
    return dict(zip(names, (n.replace("sluice::cuda::", "").replace("(anonymous namespace)::", "") for n in out)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuobjdump", default="cuobjdump")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("library")
    args = parser.parse_args()
    if not os.path.exists(args.cuobjdump):
        print(f"skipped: there is no {args.cuobjdump}")
        sys.exit(77)
    found = dict(functions(args.cuobjdump, args.library))
    names = short_names(sorted(found))
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
