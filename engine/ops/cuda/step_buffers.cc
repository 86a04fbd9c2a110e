#include "engine/ops/cuda/step_buffers.h"

#include <algorithm>
#include <span>

#include "engine/base/check.h"

namespace sluice {
namespace {

// Hands out spans of the image, each at a multiple of 64 ints so that no two arrays share a sector.
class Image {
 public:
  Image(int32_t* host, int32_t* device) : host_(host), device_(device) {}

  // Appends `values`, then `padding` up to `size` of them; returns where they will be on the device.
  const int32_t* Add(std::span<const int32_t> values, int64_t size, int32_t padding) {
    SLUICE_CHECK(static_cast<int64_t>(values.size()) <= size);
    int32_t* to = host_ + used_;
    std::copy(values.begin(), values.end(), to);
    std::fill(to + values.size(), to + size, padding);
    return Take(size);
  }
  // Room for `size` values, which the caller fills at host().
  const int32_t* Take(int64_t size) {
    const int32_t* at = device_ + used_;
    used_ += Rounded(size);
    return at;
  }
  int32_t* host() { return host_ + used_; }
  int64_t used() const { return used_; }
  static int64_t Rounded(int64_t size) { return (size + 63) / 64 * 64; }

 private:
  int32_t* const host_;
  int32_t* const device_;
  int64_t used_ = 0;
};

int64_t ImageInts(const StepShape& shape, int64_t num_groups) {
  return 4 * Image::Rounded(shape.num_tokens) + Image::Rounded(shape.num_seqs + 1) +
         5 * Image::Rounded(shape.num_seqs) + Image::Rounded(shape.num_logits) +
         num_groups *
             (Image::Rounded(shape.num_tokens) + Image::Rounded(int64_t{shape.num_seqs} * shape.block_table_stride));
}

void FillRowSequences(std::span<const int32_t> row_starts, int32_t num_tokens, int32_t* to) {
  std::fill(to, to + num_tokens, -1);
  for (size_t seq = 0; seq + 1 < row_starts.size(); ++seq) {
    std::fill(to + row_starts[seq], to + row_starts[seq + 1], static_cast<int32_t>(seq));
  }
}

void FillTables(const KvGroupView& group, int32_t num_seqs, const StepShape& shape, int32_t* to) {
  std::fill(to, to + int64_t{shape.num_seqs} * shape.block_table_stride, -1);
  for (int32_t seq = 0; seq < num_seqs; ++seq) {
    const int32_t* row = group.block_tables.data() + int64_t{seq} * group.block_table_stride;
    std::copy(row, row + group.block_table_stride, to + int64_t{seq} * shape.block_table_stride);
  }
}

}  // namespace

absl::Status StepBuffers::Reserve(const StepShape& largest, int32_t num_groups) {
  return ReserveInts(ImageInts(largest, num_groups));
}

absl::Status StepBuffers::ReserveInts(int64_t ints) {
  const int64_t bytes = ints * static_cast<int64_t>(sizeof(int32_t));
  if (bytes <= arrays_.bytes()) return absl::OkStatus();
  for (HostImage& image : images_) {
    SLUICE_ASSIGN_OR_RETURN(image.memory, DeviceBuffer::CreatePinned(device_, bytes));
    if (image.sent != nullptr) continue;
    SLUICE_ASSIGN_OR_RETURN(image.sent, device_->NewEvent());
  }
  SLUICE_ASSIGN_OR_RETURN(arrays_, DeviceBuffer::Create(device_, bytes));
  return absl::OkStatus();
}

absl::Status StepBuffers::Send(const BatchView& batch, const StepShape& shape, const MlaExpansion& expansion) {
  const int32_t num_seqs = static_cast<int32_t>(batch.context_lens.size());
  SLUICE_CHECK(num_seqs <= shape.num_seqs);
  SLUICE_RETURN_IF_ERROR(ReserveInts(ImageInts(shape, static_cast<int64_t>(batch.kv_groups.size()))));
  shape_ = shape;

  HostImage& host = images_[next_image_];
  next_image_ = (next_image_ + 1) % images_.size();
  SLUICE_RETURN_IF_ERROR(device_->Wait(*host.sent));  // what it was two steps ago may still be on its way

  Image image(host.memory.as<int32_t>(), arrays_.as<int32_t>());
  step_ = {};
  step_.num_tokens = shape.num_tokens;
  step_.num_seqs = shape.num_seqs;
  step_.token_ids = image.Add(batch.token_ids, shape.num_tokens, 0);
  step_.token_sources = image.Add(batch.token_sources, shape.num_tokens, -1);
  step_.positions = image.Add(batch.positions, shape.num_tokens, 0);
  FillRowSequences(batch.row_starts, shape.num_tokens, image.host());
  step_.row_sequences = image.Take(shape.num_tokens);
  step_.row_starts = image.Add(batch.row_starts, shape.num_seqs + 1, batch.row_starts.back());
  step_.row_ends = step_.row_starts + 1;
  step_.context_lens = image.Add(batch.context_lens, shape.num_seqs, 0);
  step_.rope_classes = image.Add(batch.rope_classes, shape.num_seqs, 0);
  // Padding keeps its no rows: they begin and end where those of the batch end.
  const bool expands = expansion.any();
  expanded_ends_ = image.Add(expands ? expansion.expanded_ends() : std::span<const int32_t>(), shape.num_seqs,
                             batch.row_starts.back());
  expanded_blocks_ = image.Add(expands ? expansion.first_blocks() : std::span<const int32_t>(), shape.num_seqs, -1);
  logits_rows_ = image.Add(batch.logits_rows, shape.num_logits, shape.num_tokens - 1);
  groups_.clear();
  for (const KvGroupView& group : batch.kv_groups) {
    cuda::KvGroupArrays arrays;
    arrays.slot_mapping = image.Add(group.slot_mapping, shape.num_tokens, -1);
    FillTables(group, num_seqs, shape, image.host());
    arrays.block_tables = image.Take(int64_t{shape.num_seqs} * shape.block_table_stride);
    arrays.stride = shape.block_table_stride;
    groups_.push_back(arrays);
  }
  device_->Upload(arrays_.data(), host.memory.data(), image.used() * static_cast<int64_t>(sizeof(int32_t)));
  device_->Record(host.sent.get());
  return absl::OkStatus();
}

}  // namespace sluice
