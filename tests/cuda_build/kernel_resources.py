#!/usr/bin/env python3
"""Registers, stack and shared memory of every kernel in a library, by architecture: none may spill, none may take so many
registers that its block does not fit an SM. Prints the table with --table."""

import argparse
import sys

import cuobjdump

# Bytes of stack that a kernel may use. sm_90 is what they are made for; on sm_80 one of the products with quantised
# weights misses the 80 registers that nvcc gives it by six.
STACK_ALLOWED = {"sm_80": 24}
MOST_REGISTERS = 255


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuobjdump", required=True)
    parser.add_argument("--table", action="store_true", help="print every kernel")
    parser.add_argument("archive", help="a static library of objects that nvcc made")
    args = parser.parse_args()
    cuobjdump.require(args.cuobjdump)
    rows = list(cuobjdump.resources(args.cuobjdump, args.archive))
    names = cuobjdump.short_names(row[1] for row in rows)
    bad = []
    for arch, kernel, registers, stack, shared, local in rows:
        name = names[kernel]
        if args.table:
            print(f"{arch} {registers:4} registers {stack:5} stack {local:5} local {shared:6} shared  {name}")
        if stack > STACK_ALLOWED.get(arch, 0) or local > 0 or registers > MOST_REGISTERS:
            bad.append(f"{arch} {name}: {registers} registers, {stack} bytes of stack, {local} of local memory")
    print(f"{len(rows)} kernels in {len({row[0] for row in rows})} architectures, at most {max(row[2] for row in rows)} registers")
    if not rows or bad:
        print("\n".join(["spilled or too large:"] + bad))
        sys.exit(1)


main()
