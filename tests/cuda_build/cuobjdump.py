"""What cuobjdump says of a library of kernels."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass


@dataclass(slots=True)
class Instruction:
    """Of Volta and later: 16 bytes, with what the scheduler is to do in bits 105 to 121."""

    address: int
    opcode: str  # LDG.E.128
    guard: str  # @!P0, or nothing
    operands: str
    target: int | None  # of a branch
    stall: int = 0  # clocks until the warp's next instruction may follow
    sets: int = 7  # the scoreboard that says when the result is there; 7: none
    frees: int = 7  # likewise when the operands have been read
    waits: int = 0  # bit i: for scoreboard i

    @property
    def name(self):
        return self.opcode.split(".")[0]

    def decode(self, high):
        """high: the upper 8 bytes."""
        self.stall = high >> 41 & 15
        self.sets, self.frees, self.waits = high >> 46 & 7, high >> 49 & 7, high >> 52 & 63


def require(program):
    """A skip where there is no such program."""
    if not os.path.exists(program):
        print(f"skipped: there is no {program}")
        sys.exit(77)


def short_names(mangled):
    """{mangled: as a person would write it, without namespaces}"""
    names = sorted(set(mangled))
    out = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.split("\n")
    return dict(zip(names, (name.replace("sluice::cuda::", "").replace("(anonymous namespace)::", "") for name in out)))


def resources(cuobjdump, archive):
    """Yields (architecture, kernel, registers, stack bytes, static shared bytes, local bytes)."""
    text = subprocess.run([cuobjdump, "--dump-resource-usage", archive], check=True, capture_output=True, text=True).stdout
    arch, kernel = "", ""
    for line in text.splitlines():
        if match := re.match(r"arch = (sm_\w+)", line.strip()):
            arch = match.group(1)
        elif match := re.match(r"\s*Function (\S+):", line):
            kernel = match.group(1)
        elif match := re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", line):
            yield (arch, kernel, *map(int, match.groups()))


INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+)?\s*([A-Z][A-Z0-9_.]*)\s*([^;]*);")
UPPER_HALF = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/")
TARGET = re.compile(r"0x([0-9a-f]+)\s*$")


def instructions(cuobjdump, archive, arch):
    """Yields (kernel, [Instruction])."""
    process = subprocess.Popen([cuobjdump, "-sass", "-arch", arch, archive], stdout=subprocess.PIPE, text=True)
    name, code = None, []
    for line in process.stdout:
        if match := UPPER_HALF.match(line):
            if code:
                code[-1].decode(int(match.group(1), 16))
        elif match := INSTRUCTION.match(line):
            address, guard, opcode, operands = match.groups()
            to = TARGET.search(operands) if opcode.split(".")[0] == "BRA" else None
            code.append(Instruction(int(address, 16), opcode, guard or "", operands.strip(), int(to.group(1), 16) if to else None))
        elif match := re.match(r"\s*Function : (\S+)", line):
            if name:
                yield name, code
            name, code = match.group(1), []
    if name:
        yield name, code
    if process.wait() != 0:
        sys.exit(f"{cuobjdump} failed")
