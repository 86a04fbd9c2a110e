"""Packs weights as published quantised checkpoints store them; each packer returns what the packed form stands for."""

import torch

FP4_VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
FP8_BLOCK = 128


def pack_fp8(weight):
    """[out, in] -> e4m3 [out, in], f32 scales [ceil(out/128), ceil(in/128)], the f32 values they stand for."""
    rows, cols = weight.shape
    packed = torch.empty(rows, cols, dtype=torch.float8_e4m3fn)
    scales = torch.empty(-(-rows // FP8_BLOCK), -(-cols // FP8_BLOCK))
    values = torch.empty(rows, cols)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            block = (slice(i * FP8_BLOCK, (i + 1) * FP8_BLOCK), slice(j * FP8_BLOCK, (j + 1) * FP8_BLOCK))
            scales[i, j] = weight[block].abs().max() / 448
            packed[block] = (weight[block] / scales[i, j]).to(torch.float8_e4m3fn)
            values[block] = packed[block].float() * scales[i, j]
    return packed, scales, values


def pack_mxfp4(weight):
    """[experts, rows, in] -> u8 blocks [experts, rows, in/32, 16], u8 scales [experts, rows, in/32], f32 values.

    The low nibble of byte j is element 2j of the block; a scale s stands for 2^(s - 127).
    """
    experts, rows, cols = weight.shape
    blocks = weight.view(experts, rows, cols // 32, 32)
    exponent = torch.floor(torch.log2(blocks.abs().amax(-1, keepdim=True) / 6 * 1.1)).clamp(-127, 127)
    scaled = blocks / 2.0**exponent
    nibbles = (scaled[..., None] - FP4_VALUES).abs().argmin(-1).to(torch.uint8)
    values = (FP4_VALUES[nibbles.long()] * 2.0**exponent).view(weight.shape)
    packed = nibbles[..., 0::2] | nibbles[..., 1::2] << 4
    return packed, (exponent[..., 0] + 127).to(torch.uint8), values


def fp8_names(state):
    """Projections are packed; embedding, head, norms, routers and biases stay."""
    return [n for n, v in state.items() if v.dim() == 2 and n.endswith("_proj.weight") or n.endswith("with_mqa.weight")]
