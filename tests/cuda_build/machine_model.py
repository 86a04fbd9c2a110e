"""What one H200 makes of a kernel's machine code: a model of one page, every figure of which has a source or is named an
assumption. It knows nothing that a launch and the code do not say.

Time of a launch = ends + the longest of these, each as if it were alone:

  memory   bytes that must move / 4.3 TB/s
  flight   a warp alone takes T clocks for a pass of its main loop (below), of which the first is waited for once more;
           the warps that an SM holds at a time take turns:    passes of an SM * T * (p + 1) / p / warps, p passes a warp
  L2       bytes that SMs load / 5.5 TB/s: the stream once for each block that reads it, what all blocks read alike once
           a block, or once an SM where it fits the L1 that shared memory leaves
  tensor, issue, integer, fma, special, f64, shuffle, L1   (passes of the SM with the most blocks) * (clocks that a pass
           keeps the unit busy)

and its share of the floor is max(bytes / 4.3 TB/s, flops / 790 TFLOP/s) / that. `ends` is two latencies: until the first
bytes are there, and from the last bytes to the last results. Launch gaps, of about 2 us each in a graph, are not in it.

A pass is the main loop once, on the shortest way through it that does all of its work (mma, ldmatrix, 16-byte loads and
copies; loads of any width in a loop without mma): the code of borders of masks, softcaps and the like is left out. Of a
kernel whose threads take a few values each the pass is all of its code, on the shortest way on which a warp loads and
stores its part of the launch's bytes. How many passes there are follows from the launch: its mma instructions over those
of a pass, or its bytes over those that a warp loads in a pass.

T is found by running a pass through the scoreboard: an instruction starts when the one before it allows (the stall count
that the compiler wrote into it) and the results that it waits for are there, each at its latency. Bytes in flight are the
most that a warp's loads have in flight before an instruction waits for one of them. A load of the stream takes as long as
the part of it that comes from memory (bytes / stream) and the rest from the L2 make on average; what a warp loads beyond its
part of the stream (weights of a norm) is in the L2. Copies that only some lanes make are counted whole.

Luo et al.: Benchmarking and Dissecting the Nvidia Hopper GPU Architecture, arXiv 2402.13499, 2024.
"""

from collections import Counter
from dataclasses import dataclass
from math import ceil

SMS = 132
CLOCK = 1.755e9  # Hz; the boost clock of the H100 PCIe and what 18.6 bytes a clock and SM at 4.3 TB/s imply
MEMORY = 4.3e12  # bytes/s: the measured copy rate, 90 % of the datasheet's 4.8
TENSOR_FLOOR = 790e12  # flop/s: measured with cuBLAS
L2 = 5.5e12  # bytes/s: Chips and Cheese, H100, 2023
# Of memory under load. Alone a load takes 479 clocks = 0.27 us (Luo et al. 2024, H100); queues at full bandwidth make it
# more. 0.7 us is an assumption.
LATENCY = 0.7e-6
IN_FLIGHT_NEEDED = MEMORY * LATENCY / SMS  # bytes an SM

REGISTERS = 65536  # of an SM, in 4 parts; a warp gets multiples of 256
SHARED = 228 * 1024  # of an SM; a block takes 1 KB more than it asks for
L1_AND_SHARED = 256 * 1024
WARPS, BLOCKS = 64, 32

# Results a clock and SM (CUDA programming guide, throughput of arithmetic instructions, 9.0), as warps a clock.
RATES = {"issue": 4, "integer": 2, "fma": 4, "special": 0.5, "f64": 2, "shuffle": 1}
INTEGER = set("LOP3 SHF SHL SHR IADD3 VIADD LEA ISETP IMNMX VIMNMX VIADDMNMX SEL PRMT FMNMX FSETP FSEL PLOP3 MOV IABS BREV "
              "IMAD POPC HMNMX2 I2F F2I F2F F2FP I2FP FRND FLO FCHK".split())
UNITS = (dict.fromkeys(INTEGER, "integer") | dict.fromkeys("FADD FMUL FFMA HFMA2 HADD2 HMUL2".split(), "fma") |
         {"MUFU": "special", "SHFL": "shuffle"} | dict.fromkeys("DFMA DADD DMUL DSETP".split(), "f64"))
L1_BYTES = 128  # a clock
# mma.sync reaches 63 % of the 4096 flop a clock and SM (Luo et al. 2024); m16n8k16 is 4096 flop.
TENSOR_CLOCKS = 1 / 0.63

# Clocks until a result is there (Luo et al. 2024, H100; `other` of instructions whose time is not fixed is a guess).
DRAM_CLOCKS = LATENCY * CLOCK
L2_CLOCKS, L1_CLOCKS, SHARED_CLOCKS, OTHER_CLOCKS, READ_CLOCKS = 263, 41, 30, 24, 16


def width(opcode):
    """Bytes of a lane's load, store or copy."""
    for suffix, size in ((".128", 16), (".64", 8), (".U16", 2), (".S16", 2), (".U8", 1), (".S8", 1)):
        if suffix in opcode:
            return size
    return 4


def l1_bytes(instruction):
    """Bytes between a warp's registers, or the L2, and the memory of an SM."""
    if instruction.name == "LDSM":
        return 128 * int(instruction.opcode[-1])
    if instruction.name in ("LDS", "STS", "LDG", "STG", "LDGSTS", "ATOMS"):
        return 32 * width(instruction.opcode)
    return 0


def is_stream(instruction):
    return instruction.name in ("LDG", "LDGSTS") and ".128" in instruction.opcode


def is_jump(instruction):
    """But for those of lanes that have parted, which the common case does not know."""
    return instruction.name == "BRA" and instruction.opcode != "BRA.DIV" and instruction.target is not None


def is_conditional(instruction):
    return bool(instruction.guard) or "P" in instruction.operands


LOADS = ("LDG", "LDGSTS")  # of global memory, into registers and into shared memory


def loops(code):
    """The bodies of its loops: from the target of a jump back to the jump."""

    def returns(body):
        """Whether the last instruction follows from the first: code out of line jumps back, too."""
        reached = {body[0].address}
        for n, i in enumerate(body[:-1]):
            if i.address in reached:
                reached |= {i.target} if is_jump(i) else set()
                reached |= {body[n + 1].address} if not is_jump(i) or is_conditional(i) else set()
        return body[-1].address in reached

    ranges = {(i.target, i.address) for i in code if is_jump(i) and i.target <= i.address}
    return [body for first, last in sorted(ranges) if returns(body := [i for i in code if first <= i.address <= last])]


def main_loop(code):
    """The smallest loop with at least half of the kernel's mma; of a kernel without, the one that loads the most bytes an
    instruction. None: there is no loop that does either."""
    mma = [i.address for i in code if i.name == "HMMA"]
    if mma:
        holders = [body for body in loops(code) if 2 * sum(i.name == "HMMA" for i in body) >= len(mma)]
        return min(holders, key=len, default=None)
    density = {len(body): body for body in loops(code)}
    return max(density.values(), key=lambda body: sum(width(i.opcode) for i in body if i.name in LOADS) / len(body), default=None)


def shortest_path(body, gain, enough):
    """The way through `body`, taking no branch back, on which the gains of instructions reach `enough` in each component,
    or else the most that there is, and of those ways the shortest. gain(i): a tuple like `enough`."""
    place = {i.address: n for n, i in enumerate(body)}
    jumps = {n: place.get(i.target, len(body)) for n, i in enumerate(body) if is_jump(i)}
    ends_at = {n for n, i in enumerate(body) if i.opcode == "EXIT" and not i.guard}
    # Pieces without a jump, by where they begin.
    begins = sorted({0} | {n + 1 for n in (*jumps, *ends_at)} | {to for to in jumps.values()})
    # At the beginning of each, by what has been gained: (length so far, the pieces on the way there).
    reached = {n: {} for n in (*begins, len(body))}
    reached[0] = {tuple(0 for _ in enough): (0, None)}
    ends = {}

    def arrive(states, gained, length, way):
        if gained not in states or length < states[gained][0]:
            states[gained] = (length, way)

    for first, last in zip(begins, [*begins[1:], len(body)]):
        if first >= len(body):
            break
        piece = [sum(gains) for gains in zip(*(gain(i) for i in body[first:last]))]
        to, conditional = jumps.get(last - 1), is_conditional(body[last - 1])
        for gained, (length, way) in reached[first].items():
            after = tuple(min(a + b, c) for a, b, c in zip(gained, piece, enough))
            step = (length + last - first, (first, last, way))
            ahead = to is not None and last <= to < len(body)
            if ahead:
                arrive(reached[to], after, *step)
            if last - 1 in ends_at:
                arrive(ends, after, *step)
            elif not ahead or conditional:
                arrive(reached[last], after, *step)
    ends = ends or reached[len(body)]
    gained = max(ends, key=lambda g: (sum(a / c for a, c in zip(g, enough) if c), -ends[g][0]))
    way, path = ends[gained][1], []
    while way is not None:
        first, last, way = way
        path += reversed(body[first:last])
    return path[::-1]


class Warp:
    """One warp alone, in order. stream: which instructions load the stream; stream_bytes: how many of it a warp loads."""

    def __init__(self, load_clocks, other_load_clocks, stream, stream_bytes):
        self.load_clocks, self.other_load_clocks = load_clocks, other_load_clocks
        self.stream, self.left = stream, stream_bytes
        self.clock = 0
        self.boards = [0] * 6  # when all that a scoreboard stands for is there
        self.groups = []  # when each closed group of asynchronous copies is there
        self.flying = []  # (when it is there, bytes)
        self.most_in_flight = 0

    def step(self, i):
        for board in range(6):
            if i.waits >> board & 1:
                self.clock = max(self.clock, self.boards[board])
        if i.name == "DEPBAR" and (allowed := i.operands.rsplit(",", 1)[-1].strip()).startswith("0x"):
            done = len(self.groups) - int(allowed, 16)
            self.clock = max([self.clock] + self.groups[:max(done, 0)])
        latency = self.other_load_clocks if i.name in ("LDG", "LD") else OTHER_CLOCKS
        if i.name in ("LDS", "LDSM", "ATOMS"):
            latency = SHARED_CLOCKS
        elif self.stream(i) and self.left > 0:
            latency = self.load_clocks
            self.left -= 32 * width(i.opcode)
            self._fly(32 * width(i.opcode))
        elif i.name == "LDGDEPBAR":
            self.groups.append(self.clock + self.load_clocks)
        if i.sets < 6:
            self.boards[i.sets] = max(self.boards[i.sets], self.clock + latency)
        if i.frees < 6:
            self.boards[i.frees] = max(self.boards[i.frees], self.clock + READ_CLOCKS)
        self.clock += max(i.stall, 1)

    def _fly(self, size):
        self.flying = [(there, some) for there, some in self.flying if there > self.clock]
        self.flying.append((self.clock + self.load_clocks, size))
        self.most_in_flight = max(self.most_in_flight, sum(some for _, some in self.flying))


def occupancy(registers, shared, threads):
    """(blocks on an SM, what limits them)"""
    warps = ceil(threads / 32)
    of_warp = ceil(registers * 32 / 256) * 256
    limits = {"threads": WARPS // warps, "blocks": BLOCKS, "registers": REGISTERS // 4 // of_warp * 4 // warps}
    limits["shared"] = SHARED // (ceil(shared / 128) * 128 + 1024)
    limit = min(limits, key=limits.get)
    return limits[limit], limit


@dataclass
class Launch:
    """A line of kernel_launches."""

    case: str
    kernel: str
    grid_x: int
    grid_y: int
    grid_z: int
    threads: int
    shared: int
    dependent: int
    bytes: int
    flops: int
    mma: int
    stream: int
    common: int
    pieces: int
    loops: int

    def __post_init__(self):
        self.blocks = self.grid_x * self.grid_y * self.grid_z
        self.block_warps = ceil(self.threads / 32)
        self.warps = self.blocks * self.block_warps
        self.stream = self.stream or self.bytes
        self.floor = max(self.bytes / MEMORY, self.flops / TENSOR_FLOOR)


@dataclass
class Kernel:
    name: str
    code: list
    registers: int
    static_shared: int
    loops: bool  # its work is in a loop

    def __post_init__(self):
        loop = main_loop(self.code) if self.loops else None
        self.is_loop = loop is not None
        self.loop = loop if self.is_loop else self.code
        self.has_mma = any(i.name == "HMMA" for i in self.loop)
        wide = any(map(is_stream, self.loop))
        self.is_stream = is_stream if wide else lambda i: i.name in LOADS

    def occupancy(self, launch):
        return occupancy(self.registers, self.static_shared + launch.shared, launch.threads)

    def l1_holds_common(self, launch):
        """What all blocks read alike, by loads of less than 16 bytes: copies pass the L1 by."""
        left = L1_AND_SHARED - self.occupancy(launch)[0] * (self.static_shared + launch.shared + 1024)
        return 0 < launch.common <= left and any(i.name == "LDG" and not is_stream(i) for i in self.loop)


class Pass:
    """A kernel's main loop, or all of its code, once, in a launch."""

    def __init__(self, kernel, launch):
        self.kernel = kernel
        stream_bytes = launch.stream / launch.warps
        if kernel.has_mma:
            self.path = shortest_path(kernel.loop, lambda i: (i.name in ("HMMA", "LDSM") or is_stream(i),), (1 << 30,))
        elif kernel.is_loop:
            self.path = shortest_path(kernel.loop, lambda i: (i.name in LOADS,), (1 << 30,))
        else:
            stores = max(0, launch.bytes - launch.stream) / launch.warps

            def gain(i):
                size = 32 * width(i.opcode)
                return (size if i.name == "LDG" else 0, size if i.name == "STG" else 0)

            self.path = shortest_path(kernel.loop, gain, (stream_bytes, stores))
        if kernel.is_loop:
            stream_bytes = float("inf")
        from_memory = min(1, launch.bytes / launch.stream)
        self.other_load_clocks = L1_CLOCKS if kernel.l1_holds_common(launch) else L2_CLOCKS
        self.clocks = self._run(from_memory * DRAM_CLOCKS + (1 - from_memory) * L2_CLOCKS, stream_bytes)[0]
        self.in_flight = self._run(1e7, stream_bytes)[1]  # bytes of a warp

    def _run(self, load_clocks, stream_bytes):
        warp, marks = Warp(load_clocks, self.other_load_clocks, self.kernel.is_stream, stream_bytes), []
        for _ in range(8 if self.kernel.is_loop else 1):
            for i in self.path:
                warp.step(i)
            marks.append(warp.clock)
        return (marks[7] - marks[3]) / 4 if self.kernel.is_loop else marks[0], warp.most_in_flight

    def count(self, name):
        return sum(1 for i in self.path if i.name == name)

    def loaded(self):
        return sum(32 * width(i.opcode) for i in self.path if i.name == "LDG")

    def busy(self):
        """{unit: clocks of an SM that a pass of one warp takes}"""
        units = Counter(UNITS[i.name] for i in self.path if i.name in UNITS)
        busy = {unit: number / RATES[unit] for unit, number in units.items()}
        busy["issue"] = len(self.path) / RATES["issue"]
        busy["tensor"] = self.count("HMMA") * TENSOR_CLOCKS
        busy["L1"] = sum(map(l1_bytes, self.path)) / L1_BYTES
        return busy


@dataclass
class Prediction:
    one: Pass
    in_flight: float  # bytes an SM
    times: dict  # {bound: seconds}
    seconds: float
    share: float  # of the floor

    @property
    def bound(self):
        return max(self.times, key=self.times.get)


def predict(kernel, launch):
    one = Pass(kernel, launch)
    # Warps that have something to do, of those an SM can hold; blocks that the busiest SM gets, over the average.
    warps = min(kernel.occupancy(launch)[0], launch.blocks / SMS) * launch.block_warps
    uneven = ceil(launch.blocks / SMS) / (launch.blocks / SMS)
    if launch.pieces:
        warps = min(warps, launch.pieces / SMS)
        uneven = max(1, ceil(launch.pieces / launch.warps) / (launch.pieces / launch.warps))

    if one.count("HMMA"):
        passes = launch.mma / one.count("HMMA")
    elif kernel.is_loop:
        passes = max(launch.warps, launch.stream / max(1, one.loaded()))
    else:
        passes = launch.warps
    of_warp = passes / (launch.pieces or launch.warps)
    first = (of_warp + 1) / of_warp if kernel.is_loop else 1

    common = launch.common * (min(launch.blocks, SMS) if kernel.l1_holds_common(launch) else launch.blocks)

    times = {"memory": launch.bytes / MEMORY,
             "flight": passes / SMS * one.clocks * first / warps / CLOCK,
             "L2": (launch.stream + common) / L2}
    times |= {unit: passes / SMS * uneven * clocks / CLOCK for unit, clocks in one.busy().items()}
    seconds = 2 * LATENCY + max(times.values())
    return Prediction(one, warps * one.in_flight, times, seconds, launch.floor / seconds)
