#include "engine/ops/cuda/weight_upload.h"

#include <algorithm>

namespace sluice {

absl::Status WeightUpload::Send(std::byte* to, int64_t num_parts, int64_t part_bytes,
                                absl::FunctionRef<void(int64_t part, int worker, std::byte* out)> fill) {
  if (pool_ == nullptr) pool_ = std::make_unique<ThreadPool>(num_threads_);
  const int64_t at_once = std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, part_bytes));
  for (int64_t first = 0; first < num_parts; first += at_once) {
    const int64_t count = std::min(at_once, num_parts - first);
    Piece& piece = pieces_[next_piece_];
    next_piece_ = (next_piece_ + 1) % pieces_.size();
    if (piece.sent == nullptr) {
      SLUICE_ASSIGN_OR_RETURN(piece.sent, device_->NewEvent());
    }
    SLUICE_RETURN_IF_ERROR(device_->Wait(*piece.sent));
    if (piece.memory.bytes() < count * part_bytes) {
      const int64_t bytes = std::max(kPieceBytes, count * part_bytes);
      SLUICE_ASSIGN_OR_RETURN(piece.memory, DeviceBuffer::CreatePinned(device_, bytes));
    }
    std::byte* memory = piece.memory.as<std::byte>();
    pool_->ParallelFor(static_cast<uint32_t>(count),
                       [&](uint32_t part, int worker) { fill(first + part, worker, memory + part * part_bytes); });
    device_->Upload(to + first * part_bytes, memory, count * part_bytes);
    device_->Record(piece.sent.get());
  }
  return absl::OkStatus();
}

absl::Status WeightUpload::Finish() {
  SLUICE_RETURN_IF_ERROR(device_->Synchronize());
  for (Piece& piece : pieces_) piece = {};
  pool_.reset();
  return absl::OkStatus();
}

}  // namespace sluice
