#!/usr/bin/env python3
"""Makes dequant.bin: blocks of every quantised GGUF type and the values GGUF's own Python reader gives them.

Run in an environment with gguf==0.19.0 and numpy==2.4.6:   python tests/goldens/make_dequant.py
Layout, little-endian, for each type: u32 GGUF type id, u32 elements, the blocks, the values as float32.
"""

import pathlib
import struct

import gguf
import numpy as np

ELEMENTS = 1024
# Where the f16 scales of a block are: random bytes there would be infinities and NaNs.
SCALES = {
    "F16": (0,), "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,),
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "MXFP4": (), "BF16": (),
}


def random_blocks(rng, qtype, scales):
    block_elems, block_bytes = gguf.GGML_QUANT_SIZES[qtype]
    blocks = rng.integers(0, 256, (ELEMENTS // block_elems, block_bytes), dtype=np.uint8)
    for at in scales:
        finite = rng.integers(0, 0x7C00, len(blocks)) | rng.integers(0, 2, len(blocks)) << 15
        blocks[:, at:at + 2] = finite.astype("<u2").view(np.uint8).reshape(-1, 2)
    if qtype.name == "BF16":  # no NaN: its payload is nobody's promise
        blocks[blocks[:, 1] & 0x7F == 0x7F, 1] = 0x3F
    if qtype.name == "MXFP4":  # the ends of the exponent's range
        blocks[:5, 0] = (0, 1, 2, 254, 255)
    return blocks.reshape(-1)


def main():
    rng = np.random.default_rng(20240229)
    out = bytearray()
    for name, scales in SCALES.items():
        qtype = gguf.GGMLQuantizationType[name]
        blocks = random_blocks(rng, qtype, scales)
        values = gguf.quants.dequantize(blocks, qtype).astype("<f4").reshape(-1)
        assert len(values) == ELEMENTS and not np.isnan(values).any()
        out += struct.pack("<II", int(qtype), ELEMENTS) + blocks.tobytes() + values.tobytes()
    (pathlib.Path(__file__).parent / "dequant.bin").write_bytes(out)


if __name__ == "__main__":
    main()
