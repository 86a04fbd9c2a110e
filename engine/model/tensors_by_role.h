// The tensors of a file by their meaning: all there, all of the right shape, nothing left over.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/tensor_view.h"
#include "engine/model/spec.h"
#include "engine/model/stored_matrix.h"
#include "engine/model/tensor_naming.h"

namespace sluice {

// Where a file has a role of one layer: `count` matrices [rows, cols], or vectors (cols is 1), in the form that the
// naming says.
class StoredRole {
 public:
  int64_t count() const { return count_; }
  int64_t rows() const { return whole_.rows; }
  int64_t cols() const { return whole_.cols; }
  StoredMatrix Matrix(int64_t index) const;

 private:
  friend class RoleMatcher;

  std::vector<std::pair<const TensorView*, const TensorView*>> tensors_;  // with companions; one, or `count`
  StoredMatrix whole_;                                                    // but for its tensors, of index 0
  int64_t count_ = 1;
  bool merged_ = false;  // the `count` matrices are one below the other in a single slab
};

class TensorsByRole {
 public:
  // INVALID_ARGUMENT names a tensor that is missing, unknown, there twice, or of another shape, with what was found and
  // what was expected; UNIMPLEMENTED: stored in a type that is not supported, or of a role that this kind of file has
  // no name for. An output head beside tied embeddings is a role like any other unless it equals the embedding; one
  // that is missing although the embeddings are not tied is left out. Both are in warnings(). `tensors` outlives the
  // result.
  // REQUIRES: ValidateModelSpec(spec) is OK.
  static absl::StatusOr<TensorsByRole> Match(const ModelSpec& spec, const TensorNaming& naming,
                                             absl::Span<const TensorView> tensors, const std::string& file,
                                             Fp8BlockSize fp8_block);

  // Null if the file has none because the spec does not call for it.
  const StoredRole* Find(TensorRole role, int32_t layer) const {
    const auto it = roles_.find({role, layer});
    return it == roles_.end() ? nullptr : &it->second;
  }

  // What is odd but no error, a line each, with the file's name.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  friend class RoleMatcher;

  absl::flat_hash_map<std::pair<TensorRole, int32_t>, StoredRole> roles_;
  std::vector<std::string> warnings_;
};

}  // namespace sluice
