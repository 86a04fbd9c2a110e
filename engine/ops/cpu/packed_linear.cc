#include "engine/ops/cpu/packed_linear.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/check.h"
#include "engine/base/status_macros.h"
#include "engine/ops/cpu/packed_codec.h"

namespace sluice {
namespace {

constexpr int kGateUpRows = kPanelRows / 2;  // rows of each part in a kGateUp panel

std::string ShapeString(const TensorView& tensor) { return absl::StrCat("[", absl::StrJoin(tensor.shape, ", "), "]"); }

absl::Status Invalid(const TensorView& tensor, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name, "': ", what));
}

absl::Status CheckPart(const TensorView& part, const TensorView& first) {
  const TensorTypeInfo& info = GetTensorTypeInfo(part.type);
  if (part.shape.size() != 2 || part.shape[0] < 1 || part.shape[1] < 1) {
    return Invalid(part, absl::StrCat("shape is ", ShapeString(part), ", expected [out, in]"));
  }
  if (!PackedTypeFor(part.type).has_value()) {
    return Invalid(part, absl::StrCat("type is ", info.name, ", expected a float or block-quantised weight type"));
  }
  if (part.shape[1] % info.block_elems != 0) {
    return Invalid(part, absl::StrCat("rows of ", part.shape[1], " values, expected a multiple of ", info.block_elems,
                                      " for ", info.name));
  }
  int64_t bytes = part.shape[1] / info.block_elems;
  if (__builtin_mul_overflow(bytes, int64_t{info.block_bytes}, &bytes) ||
      __builtin_mul_overflow(bytes, part.shape[0], &bytes) || static_cast<uint64_t>(bytes) != part.data.size()) {
    return Invalid(
        part, absl::StrCat(part.data.size(), " bytes of data do not fit shape ", ShapeString(part), " of ", info.name));
  }
  if (part.shape[1] != first.shape[1]) {
    return Invalid(part, absl::StrCat("rows of ", part.shape[1], " values, expected ", first.shape[1], " as in '",
                                      first.name, "'"));
  }
  return absl::OkStatus();
}

void PackRow(const TensorView& part, int64_t row, TensorType packed, int lane, uint8_t* panel) {
  const int64_t k = part.shape[1];
  PackLane(part.type, part.data.data() + row * TensorBytes(part.type, k), k, packed, lane, panel);
}

}  // namespace

absl::StatusOr<PackedLinear> PackedLinear::Pack(std::span<const TensorView> parts, LinearLayout layout,
                                                ThreadPool* pool, HugePageArena* arena) {
  if (parts.empty()) return absl::InvalidArgumentError("a linear layer needs at least one tensor");
  for (const TensorView& part : parts) SLUICE_RETURN_IF_ERROR(CheckPart(part, parts[0]));
  const bool gate_up = layout == LinearLayout::kGateUp;
  if (gate_up && (parts.size() != 2 || parts[0].shape != parts[1].shape)) {
    const std::string last = parts.size() == 2 ? ShapeString(parts[1]) : absl::StrCat(parts.size(), " parts");
    return Invalid(parts[0], absl::StrCat("gate and up must be two tensors of one shape, found ", ShapeString(parts[0]),
                                          " and ", last));
  }

  PackedLinear linear;
  linear.layout_ = layout;
  linear.PlanSegments(parts);
  SLUICE_CHECK(linear.num_panels_ <= std::numeric_limits<uint32_t>::max());
  std::shared_ptr<uint8_t> data = arena->Allocate(static_cast<size_t>(linear.bytes_));
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("tensor '", parts[0].name, "': no memory for ", linear.bytes_, " bytes of packed weights"));
  }
  linear.data_ = data;
  pool->ParallelFor(static_cast<uint32_t>(linear.num_panels_), [&](uint32_t index, int) {
    const PanelView view = linear.panel(index);
    linear.FillPanel(parts, view, data.get() + (view.data - data.get()));
  });
  return linear;
}

void PackedLinear::PlanSegments(std::span<const TensorView> parts) {
  const bool gate_up = layout_ == LinearLayout::kGateUp;
  k_ = parts[0].shape[1];
  for (const TensorView& part : parts) {
    const TensorType type = *PackedTypeFor(part.type);
    if (!gate_up && (segments_.empty() || segments_.back().type != type))
      segments_.push_back({type, num_rows_, 0, 0, 0, 0, 0});
    if (gate_up && segments_.empty()) segments_.push_back({type, 0, 0, 0, 0, 0, 0});
    if (gate_up && segments_.back().type != type) segments_.back().type = TensorType::kF32;
    segments_.back().num_rows = part.shape[0] + (gate_up ? 0 : segments_.back().num_rows);
    num_rows_ += part.shape[0];
  }
  for (Segment& segment : segments_) {
    const int64_t rows_per_panel = gate_up ? kGateUpRows : kPanelRows;
    segment.first_panel = num_panels_;
    segment.num_panels = (segment.num_rows + rows_per_panel - 1) / rows_per_panel;
    segment.panel_bytes = PanelBytes(segment.type, k_);
    segment.offset = bytes_;
    num_panels_ += segment.num_panels;
    bytes_ += segment.num_panels * segment.panel_bytes;
  }
}

void PackedLinear::FillPanel(std::span<const TensorView> parts, const PanelView& view, uint8_t* panel) const {
  if (layout_ == LinearLayout::kGateUp) {
    for (int lane = 0; lane < kPanelRows; ++lane) {
      const int row = lane % kGateUpRows;
      if (row < view.num_rows) PackRow(parts[lane / kGateUpRows], view.first_row + row, view.type, lane, panel);
    }
    return;
  }
  auto part = parts.begin();
  int64_t first_row = 0;  // of the part
  for (int lane = 0; lane < view.num_rows; ++lane) {
    const int64_t row = view.first_row + lane;
    while (row - first_row >= part->shape[0]) first_row += (part++)->shape[0];
    PackRow(*part, row - first_row, view.type, lane, panel);
  }
}

const PackedLinear::Segment& PackedLinear::SegmentOfPanel(int64_t panel) const {
  size_t s = 0;
  while (panel >= segments_[s].first_panel + segments_[s].num_panels) ++s;
  return segments_[s];
}

PanelView PackedLinear::panel(int64_t index) const {
  SLUICE_DCHECK(index >= 0 && index < num_panels_);
  const Segment& segment = SegmentOfPanel(index);
  const int64_t in_segment = index - segment.first_panel;
  const int rows_per_panel = layout_ == LinearLayout::kGateUp ? kGateUpRows : kPanelRows;
  const int64_t first = in_segment * rows_per_panel;
  return {segment.type, data_.get() + segment.offset + in_segment * segment.panel_bytes, segment.panel_bytes,
          segment.first_row + first, static_cast<int>(std::min<int64_t>(rows_per_panel, segment.num_rows - first))};
}

bool PackedLinear::quantized() const {
  return std::all_of(segments_.begin(), segments_.end(),
                     [](const Segment& segment) { return GetPackedFormat(segment.type).quantized(); });
}

void PackedLinear::UnpackRow(int64_t row, float* out) const {
  SLUICE_DCHECK(row >= 0 && row < num_rows_);
  if (layout_ == LinearLayout::kGateUp) {
    const int64_t half = num_rows_ / 2, in_part = row % half;
    const PanelView view = panel(in_part / kGateUpRows);
    const int lane = static_cast<int>(in_part % kGateUpRows) + (row < half ? 0 : kGateUpRows);
    return UnpackLane(view.type, view.data, k_, lane, out);
  }
  size_t s = 0;
  while (row >= segments_[s].first_row + segments_[s].num_rows) ++s;
  const int64_t in_segment = row - segments_[s].first_row;
  const uint8_t* data = data_.get() + segments_[s].offset + in_segment / kPanelRows * segments_[s].panel_bytes;
  UnpackLane(segments_[s].type, data, k_, static_cast<int>(in_segment % kPanelRows), out);
}

}  // namespace sluice
