"""What cuobjdump says of a library of kernels."""

import argparse
import os
import re
import subprocess
import sys


def arguments(description):
    """--cuobjdump PROGRAM [--table] ARCHIVE; a skip where there is no such program."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--cuobjdump", default="cuobjdump")
    parser.add_argument("--table", action="store_true", help="print every kernel")
    parser.add_argument("archive", help="a static library of objects that nvcc made")
    args = parser.parse_args()
    if not os.path.exists(args.cuobjdump):
        print(f"skipped: there is no {args.cuobjdump}")
        sys.exit(77)
    return args


def short_names(mangled):
    """{mangled: as a person would write it, without namespaces}"""
    names = sorted(set(mangled))
    out = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.split("\n")
    return dict(zip(names, (name.replace("sluice::cuda::", "").replace("(anonymous namespace)::", "") for name in out)))


def resources(args):
    """Yields (architecture, kernel, registers, stack bytes, static shared bytes, local bytes)."""
    text = subprocess.run([args.cuobjdump, "--dump-resource-usage", args.archive], check=True, capture_output=True, text=True).stdout
    arch, kernel = "", ""
    for line in text.splitlines():
        if match := re.match(r"arch = (sm_\w+)", line.strip()):
            arch = match.group(1)
        elif match := re.match(r"\s*Function (\S+):", line):
            kernel = match.group(1)
        elif match := re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", line):
            yield (arch, kernel, *map(int, match.groups()))


def instructions(args, arch):
    """Yields (kernel, [(address, opcode, branch target or None)])."""
    process = subprocess.Popen([args.cuobjdump, "-sass", "-arch", arch, args.archive], stdout=subprocess.PIPE, text=True)
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
    assert process.wait() == 0, f"{args.cuobjdump} failed"
