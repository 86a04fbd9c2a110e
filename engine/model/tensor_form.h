// How the matrix of a role (tensor_roles.h) lies inside the tensor that a file has for it.
//
// A role's shape is [out, in], a vector's [out], each with a leading axis where there is one per expert or head:
// [n, out, in]. "Rows" below runs along `out`. The tensor in the file
// - is one of n, each without the leading axis, where its name's pattern has "{expert}"; otherwise it holds all n, and
//   the leading axis may be merged with the rows: [n * rows, in];
// - has its last two axes swapped where `transposed`, which concerns matrices only;
// - is of any plain or block-quantised type. One of type F8_E4M3 has a companion
//   called `<name>_scale_inv` with a factor per block of the matrix
//   (quantization_config.h says how large blocks are): value = fp8 * factor.
#pragma once

#include <cstdint>

namespace sluice {

// Whose rows the tensor holds. Roles share a tensor when their patterns are equal; they come in the order of the table,
// and the rows of each follow from the spec. All of them are called for or none is.
enum class TensorRows : uint8_t {
  kOwn,          // of this role alone
  kStacked,      // of all its roles, one role below the other (within each of the n, if there is a leading axis)
  kInterleaved,  // of all its k roles in turn: row i of the j-th is row i * k + j of the tensor
};

enum class TensorEncoding : uint8_t {
  kOfType,  // as the tensor's type says
  // `<stem>_blocks` U8 [n, rows, in / 32, 16] with its companion `<stem>_scales` U8 [n, rows, in / 32] (gpt-oss).
  // Element 2j of a block is the low nibble of byte j, element 2j + 1 the high one: value = FP4(nibble) * 2^(scale -
  // 127); a scale of 255 is an error. The pattern names the blocks.
  kMxfp4Blocks,
};

struct TensorForm {
  TensorRows rows = TensorRows::kOwn;
  bool transposed = false;
  TensorEncoding encoding = TensorEncoding::kOfType;
};

}  // namespace sluice
