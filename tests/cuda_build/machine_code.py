#!/usr/bin/env python3
"""What nvcc made of the kernels for sm_90, how the engine launches them (kernel_launches), and what an H200 can be expected
to make of that (machine_model.py). Gates, each of which fails the test:

- no kernel goes through local memory;
- weights, keys and values are loaded 16 bytes at a time, and what is meant for tensor cores runs there, in the main loop;
- kernels that stream from memory have more bytes in flight on an SM than 4.3 TB/s for 0.7 us ask for;
- every kernel of the library is launched by kernel_launches, with a size that fits an SM;
- MACHINE_CODE.md says what is so, where it was made by the compiler at hand; --write makes it anew;
- the engine's README gives shares, as `0.98 (launch)`, that MACHINE_CODE.md has, too.
"""

import argparse
import os
import re
import subprocess
import sys
from collections import Counter

import cuobjdump
from machine_model import IN_FLIGHT_NEEDED, LATENCY, MEMORY, Kernel, Launch, predict

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "MACHINE_CODE.md")
README = os.path.join(HERE, "..", "..", "engine", "ops", "cuda", "README.md")

# Kernels by name, and what must be in a pass of their main loops.
WEIGHTS = "LDG.128"  # straight from global memory into registers
RING = "LDGSTS.128"  # cp.async into shared memory
TENSOR = "HMMA"
PLANNED = {
    r"SkinnyKernel<(BF16|F16|Q8_0Weights, 1)": {WEIGHTS, TENSOR},
    r"SkinnyKernel<(Q[456]|Q8_0Weights, 2)": {RING, TENSOR},
    r"TiledKernel": {RING, TENSOR},
    r"DecodeKernel": {RING, TENSOR},
    r"PrefillKernel": {RING, TENSOR},
    r"Latent\w+Kernel": {RING, TENSOR},
    r"NormKernel<.*true>|ConvertKernel|AddKernel|CombineKernel|ScanKernel|MergeKernel": {WEIGHTS},
}
# Kernels that must cover the latency of memory, with every SM full.
STREAMS = r"SkinnyKernel<\w+, 1, |TiledKernel|DecodeKernel|LatentPartsKernel<\w+, 576"
COLUMNS = ["LDG.128", "LDG less", "LDGSTS.128", "LDGSTS less", "LDSM", "LDS", "STS", "HMMA", "FFMA", "MUFU", "BAR", "local"]


def column(instruction):
    """Of the table; None: of no interest."""
    name = instruction.name
    if name in ("LDG", "LDGSTS"):
        return f"{name}.128" if ".128" in instruction.opcode else f"{name} less"
    if name in ("LDL", "STL"):
        return "local"
    return name if name in COLUMNS else None


def read_launches(program):
    lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    launches = []
    for line in lines[1:]:
        case, kernel, *numbers = line.split("\t")
        launches.append(Launch(case, kernel, *map(int, numbers)))
    return [launch for launch in launches if launch.bytes > 0]


def names_of(kernels):
    """{mangled: short}, with the file where two have one name."""
    names = cuobjdump.short_names(kernels)
    for long, short in (("__nv_bfloat16", "bf16"), ("__half", "f16"), ("__nv_fp8_e4m3", "fp8")):
        names = {mangled: name.replace(long, short) for mangled, name in names.items()}
    twice = {name for name, number in Counter(names.values()).items() if number > 1}
    file = re.compile(r"_GLOBAL__N__[0-9a-f]+_\d+_(\w+?)_cu_")
    return {mangled: f"{name} ({file.search(mangled).group(1)}.cu)" if name in twice else name for mangled, name in names.items()}


def read_kernels(args, launches):
    resources = {row[1]: row for row in cuobjdump.resources(args.cuobjdump, args.archive) if row[0] == "sm_90"}
    code = dict(cuobjdump.instructions(args.cuobjdump, args.archive, "sm_90"))
    names = names_of(code)
    loops = {launch.kernel for launch in launches if launch.loops}
    # 1 KB of what cuobjdump calls shared memory is the system's, in kernels that use any.
    return {m: Kernel(names[m], code[m], resources[m][2], max(0, resources[m][4] - 1024), m in loops) for m in code}


def check_kernel(kernel, one):
    """What is wrong with a kernel's code; `one`: a pass of it."""
    bad = []
    everywhere = Counter(map(column, kernel.code))
    if everywhere["local"]:
        bad.append("goes through local memory")
    if everywhere["LDGSTS less"]:
        bad.append("has asynchronous copies of less than 16 bytes")
    if any(i.name == "LDG" and ".NA" in i.opcode and ".128" not in i.opcode for i in kernel.code):
        bad.append("streams weights by loads of less than 16 bytes")
    here = Counter(map(column, one.path))
    for pattern, planned in PLANNED.items():
        if re.match(pattern, kernel.name):
            bad += [f"has no {what} in its main loop" for what in sorted(planned) if here[what] == 0]
    return [f"{kernel.name} {text}" for text in bad]


def check(kernels, launches, predictions):
    launched = {launch.kernel for launch in launches}
    bad = [f"{kernel.name} is not launched by kernel_launches" for m, kernel in kernels.items() if m not in launched]
    for pattern in list(PLANNED) + [STREAMS]:
        if not any(re.match(pattern, kernel.name) for kernel in kernels.values()):
            bad.append(f"no kernel is called {pattern}")
    seen = set()
    for launch, prediction in predictions:
        kernel = kernels[launch.kernel]
        blocks, limit = kernel.occupancy(launch)
        if blocks == 0:
            bad.append(f"{kernel.name} does not fit an SM: {limit}")
            continue
        if launch.kernel not in seen:
            bad += check_kernel(kernel, prediction.one)
        seen.add(launch.kernel)
        full = blocks * launch.block_warps * prediction.one.in_flight
        if re.match(STREAMS, kernel.name) and full < IN_FLIGHT_NEEDED:
            bad.append(f"{kernel.name} has {full:.0f} bytes in flight on a full SM, needed are {IN_FLIGHT_NEEDED:.0f}")
    return bad


def row(*cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def head(names, numbers):
    return [row(*names), "|" + "---|" * (len(names) - numbers) + "---:|" * numbers]


def table(compiler, kernels, predictions):
    first = {}
    for launch, prediction in predictions:
        first.setdefault(launch.kernel, (launch, prediction))
    order = sorted(first, key=lambda m: kernels[m].name)

    lines = [
        "# Kernels of sm_90",
        "",
        f"Made by `ninja machine_code_table` in the CUDA tree (`machine_code.py --write`) with nvcc {compiler}; the test",
        "`cuda_machine_code` compares. Nothing here is measured: resources and instructions are counted, times and shares are those",
        "of [machine_model.py](machine_model.py), which says how.",
        "",
        "## Resources",
        "",
        "Shared memory in bytes: static + dynamic of the launch, without the system's 1 KB. Blocks: that an SM of an H200 holds, and what limits them.",
        "",
    ] + head(["kernel", "limit", "registers", "shared", "threads", "blocks", "warps"], 5)
    for mangled in order:
        kernel, (launch, _) = kernels[mangled], first[mangled]
        blocks, limit = kernel.occupancy(launch)
        lines.append(row(kernel.name, limit, kernel.registers, f"{kernel.static_shared} + {launch.shared}", launch.threads, blocks,
                         blocks * launch.block_warps))

    lines += [
        "",
        "## A pass",
        "",
        "Instructions of a pass (of the main loop, or of all code where there is none) on the way of the common case, of those in",
        "the loop; T: clocks that a warp alone takes for it; flight: bytes that a warp has in flight at most.",
        "",
    ] + head(["kernel", "pass", "of"] + COLUMNS + ["T", "flight"], len(COLUMNS) + 4)
    for mangled in order:
        kernel, (_, prediction) = kernels[mangled], first[mangled]
        counts = Counter(map(column, prediction.one.path))
        lines.append(row(kernel.name, len(prediction.one.path), len(kernel.loop), *(counts[c] or "" for c in COLUMNS),
                         round(prediction.one.clocks), prediction.one.in_flight))

    lines += [
        "",
        "## Launches",
        "",
        f"Flight: KB in flight on an SM; {IN_FLIGHT_NEEDED / 1000:.1f} KB are {MEMORY / 1e12:.1f} TB/s for {LATENCY * 1e6:.1f} us. Floor and time in us. Bounds:"
        " the two that take longest, as shares of the time.",
        "",
    ] + head(["kernel", "launch", "bounds", "flight", "floor", "time", "share"], 4)
    rows = []
    for launch, prediction in predictions:
        longest = sorted(prediction.times.items(), key=lambda item: -item[1])[:2]
        bounds = ", ".join(f"{unit} {time / prediction.seconds:.2f}" for unit, time in longest)
        rows.append((kernels[launch.kernel].name, row(
            kernels[launch.kernel].name, launch.case, bounds, f"{prediction.in_flight / 1000:.1f}", f"{launch.floor * 1e6:.1f}",
            f"{prediction.seconds * 1e6:.1f}", f"{prediction.share:.2f}")))
    seen = dict.fromkeys(text for _, text in sorted(rows, key=lambda item: item[0]))
    return "\n".join(lines + list(seen)) + "\n"


def compare(compiler, text):
    """What is wrong with the committed table."""
    committed = open(TABLE).read() if os.path.exists(TABLE) else ""
    if (made := re.search(r"nvcc (\S+);", committed)) and made.group(1) != compiler:
        print(f"the table was made by nvcc {made.group(1)}, this is {compiler}: not compared")
        return []
    if committed == text:
        return []
    changed = [f"  {line}" for line in text.splitlines() if line not in set(committed.splitlines())]
    return [f"{TABLE} is not up to date; `ninja machine_code_table` makes it. Lines that it should have:"] + changed[:20]


def check_readme():
    """Shares of the README that no launch of the committed table has."""
    rows = [line.strip("| \n").split(" | ") for line in open(TABLE)]
    shares = {(cells[1], cells[-1]) for cells in rows if len(cells) == 7}
    said = re.findall(r"\b(\d\.\d\d) \(([^()]+)\)", open(README).read())
    return [f"the README says {share} of {launch}, which no launch has" for share, launch in said if (launch, share) not in shares]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuobjdump", required=True)
    parser.add_argument("--compiler", required=True, help="nvcc's version")
    parser.add_argument("--launches", required=True, help="the program kernel_launches")
    parser.add_argument("--write", action="store_true", help="write MACHINE_CODE.md instead of comparing it")
    parser.add_argument("archive", help="a static library of objects that nvcc made")
    args = parser.parse_args()
    cuobjdump.require(args.cuobjdump)
    launches = read_launches(args.launches)
    kernels = read_kernels(args, launches)
    if unknown := {launch.kernel for launch in launches} - kernels.keys():
        sys.exit(f"not in {args.archive}: {unknown}")
    predictions = [(launch, predict(kernels[launch.kernel], launch)) for launch in launches]
    bad = check(kernels, launches, predictions)
    text = table(args.compiler, kernels, predictions)
    if args.write:
        with open(TABLE, "w") as file:
            file.write(text)
    else:
        bad += compare(args.compiler, text)
    bad += check_readme()
    print(f"{len(kernels)} kernels read, {len(launches)} launches")
    if bad:
        print("\n".join(bad))
        sys.exit(1)


main()
