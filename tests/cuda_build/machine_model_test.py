#!/usr/bin/env python3
"""The model of machine_model.py on code that is short enough to count by hand."""

import unittest

from cuobjdump import Instruction
from machine_model import DRAM_CLOCKS, Kernel, Launch, Pass, is_stream, main_loop, occupancy, predict, shortest_path


def code(*lines):
    """(opcode, guard or operands or branch target) a line, at addresses 0, 16, 32, ...; stall 1."""
    made = []
    for n, (opcode, *rest) in enumerate(lines):
        options = rest[-1] if rest and isinstance(rest[-1], dict) else {}
        made.append(Instruction(16 * n, opcode, options.get("guard", ""), options.get("operands", ""), options.get("target"),
                                options.get("stall", 1), options.get("sets", 7), 7, options.get("waits", 0)))
    return made


def launch(**values):
    fields = dict(case="", kernel="", grid_x=132, grid_y=1, grid_z=1, threads=256, shared=0, dependent=0, bytes=1 << 30, flops=0,
                  mma=0, stream=0, common=0, pieces=0, loops=0)
    return Launch(**(fields | values))


# Two loads of 16 bytes, which the first mma of the next pass waits for; a branch around what is rare.
LOOP = code(
    ("S2R",),
    ("HMMA.16816.F32", {"waits": 1, "stall": 6}),
    ("BRA", {"guard": "@P0", "target": 80}),
    ("MUFU.TANH",),
    ("FMUL",),
    ("LDG.E.128", {"sets": 0}),
    ("LDG.E.128", {"sets": 0}),
    ("BRA", {"guard": "@P1", "target": 16}),
    ("EXIT",),
    ("BRA", {"target": 16}),  # code out of line, which only a jump from elsewhere enters
)


class Model(unittest.TestCase):
    def test_occupancy_follows_what_is_scarcest(self):
        self.assertEqual(occupancy(80, 4096, 256), (3, "registers"))
        self.assertEqual(occupancy(81, 4096, 256), (2, "registers"))
        self.assertEqual(occupancy(32, 100 * 1024, 128), (2, "shared"))
        self.assertEqual(occupancy(16, 0, 512), (4, "threads"))
        self.assertEqual(occupancy(16, 0, 32), (32, "blocks"))
        self.assertEqual(occupancy(32, 228 * 1024, 128)[0], 0)

    def test_the_main_loop_holds_the_mma_and_no_code_out_of_line(self):
        self.assertEqual([i.address for i in main_loop(LOOP)], list(range(16, 128, 16)))

    def test_the_way_of_the_common_case_leaves_out_what_does_no_work(self):
        path = shortest_path(main_loop(LOOP), lambda i: (i.name == "HMMA" or is_stream(i),), (100,))
        self.assertEqual([i.address for i in path], [16, 32, 80, 96, 112])

    def test_a_way_with_more_of_the_work_is_longer(self):
        body = code(("BRA", {"guard": "@P0", "target": 64}), ("LDG.E",), ("STG.E",), ("EXIT",), ("LDG.E",), ("EXIT",))
        gain = lambda i: (128 * (i.name == "LDG"), 128 * (i.name == "STG"))
        self.assertEqual([i.address for i in shortest_path(body, gain, (128, 0))], [0, 64, 80])
        self.assertEqual([i.address for i in shortest_path(body, gain, (128, 128))], [0, 16, 32, 48])

    def test_a_pass_waits_for_its_loads_once(self):
        kernel = Kernel("k", LOOP, 32, 0, True)
        one = Pass(kernel, launch(mma=1000, loops=1))
        # From the second load's issue, the last before the branch, to the next pass's mma; then mma, branch and two loads.
        self.assertAlmostEqual(one.clocks, DRAM_CLOCKS + 6 + 1 + 1, delta=2)
        self.assertEqual(one.in_flight, 2 * 512)

    def test_a_stream_is_bound_by_memory_or_by_what_is_in_flight(self):
        kernel = Kernel("k", LOOP, 32, 0, True)
        passes = (1 << 30) / 1024
        full = predict(kernel, launch(grid_x=132 * 8, mma=passes, loops=1))
        self.assertEqual(full.bound, "memory")
        self.assertEqual(full.in_flight, 64 * 1024)
        few = predict(kernel, launch(grid_x=132, mma=passes, loops=1))
        self.assertEqual(few.bound, "flight")
        self.assertLess(few.share, full.share / 2)


unittest.main()
