// Weight matrices in the packed form (packed_format.h), without losing anything: UnpackRow gives the stored values bit
// for bit.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/huge_page_arena.h"
#include "engine/base/tensor_view.h"
#include "engine/base/thread_pool.h"
#include "engine/ops/cpu/packed_format.h"
#include "engine/ops/ops.h"

namespace sluice {

// 32 lanes of packed weights.
struct PanelView {
  TensorType type = TensorType::kF32;
  const uint8_t* data = nullptr;
  int64_t bytes = 0;
  // kStacked: lane l is row first_row + l of the matrix, l < num_rows <= 32.
  // kGateUp: lane l is row first_row + l of gate, lane 16 + l is the same row of up, l < num_rows <= 16.
  // The other lanes are zero weights (their outputs are 0, or NaN where the activations are).
  int64_t first_row = 0;
  int num_rows = 0;
};

// One or more matrices [out_i, in] of the same `in`. Immutable, so any number of threads may read.
class PackedLinear {
 public:
  // kStacked: rows of the parts one below the other. Parts of one packed type share panels; a part of another type
  // starts a new panel. kGateUp: two parts of equal shape, 16 + 16 lanes per panel; if their types differ, both become
  // F32. Packs on `pool`, into memory from `arena`. The sources may go when the call returns. Errors name the tensor: a
  // shape that is not [out, in] or does not fit the bytes, different `in`, `in` that is no multiple of the type's
  // block, a type that has no packed form (INVALID_ARGUMENT); no memory (RESOURCE_EXHAUSTED).
  static absl::StatusOr<PackedLinear> Pack(std::span<const TensorView> parts, LinearLayout layout, ThreadPool* pool,
                                           HugePageArena* arena);

  int64_t num_rows() const { return num_rows_; }  // sum over the parts, without padding
  int64_t k() const { return k_; }
  LinearLayout layout() const { return layout_; }
  int64_t bytes() const { return bytes_; }

  int64_t num_panels() const { return num_panels_; }
  // REQUIRES: 0 <= index < num_panels().
  PanelView panel(int64_t index) const;
  // Whether all panels take integer activations, or some hold plain floats.
  bool quantized() const;

  // All packed bytes, the panels in order: for prefetch hints.
  std::span<const uint8_t> data() const { return {data_.get(), static_cast<size_t>(bytes_)}; }

  // Writes row `row` to out[k]. Rows count as in the parts: kStacked through all parts, kGateUp gate first, then up.
  void UnpackRow(int64_t row, float* out) const;

 private:
  // A run of panels of one packed type.
  struct Segment {
    TensorType type;
    int64_t first_row, num_rows;  // kGateUp: of one part
    int64_t first_panel, num_panels;
    int64_t panel_bytes, offset;
  };

  // Sets everything but the data.
  void PlanSegments(std::span<const TensorView> parts);
  void FillPanel(std::span<const TensorView> parts, const PanelView& view, uint8_t* panel) const;
  const Segment& SegmentOfPanel(int64_t panel) const;

  LinearLayout layout_ = LinearLayout::kStacked;
  int64_t num_rows_ = 0, k_ = 0, num_panels_ = 0, bytes_ = 0;
  std::vector<Segment> segments_;
  std::shared_ptr<const uint8_t> data_;
};

}  // namespace sluice
