#include "engine/ops/cpu/operand.h"

#include "engine/ops/cpu/run_panel.h"

namespace sluice {
namespace {

size_t RoundUp64(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

Operand::Operand(CpuContext& context, const RowSource& source, int num_rows, const PackedLinear& weights)
    : context_(context), source_(source), num_rows_(num_rows), k_(weights.k()) {
  shared_.type = TypeFor(context, weights);
  const bool as_it_is = shared_.type == ActivationType::kF32 && source.norm == nullptr && source.indices == nullptr;
  if (as_it_is) {
    shared_.data = reinterpret_cast<const uint8_t*>(source.data);
    shared_.stride_bytes = static_cast<size_t>(source.stride) * sizeof(float);
    return;
  }
  const size_t row_bytes = RoundUp64(ActivationRowBytes(shared_.type, k_));
  shared_.stride_bytes = row_bytes;
  worker_bytes_ = kFewRows * row_bytes + RoundUp64(static_cast<size_t>(k_) * sizeof(float));
  context.worker_rows.Reserve<uint8_t>(worker_bytes_ * static_cast<size_t>(context.num_threads()));
  stamp_ = ++context.num_operands;
  if (num_rows <= kFewRows) return;
  const int32_t capacity = std::max(num_rows, context.max_tokens);
  uint8_t* rows = context.operand_rows.Reserve<uint8_t>(row_bytes * static_cast<size_t>(capacity));
  ForRows(context, num_rows, [&](int row, int worker) { MakeRow(row, worker, rows + row * row_bytes); });
  shared_.data = rows;
}

Operand::Operand(CpuContext& context, const ActivationRows& ready) : context_(context), source_(), shared_(ready) {}

ActivationRows Operand::Rows(int worker, const uint8_t* first_weights) const {
  if (shared_.data != nullptr) return shared_;
  uint8_t* mine = context_.worker_rows.data<uint8_t>() + static_cast<size_t>(worker) * worker_bytes_;
  uint64_t& stamp = context_.operand_stamps[static_cast<size_t>(worker)].operand;
  if (stamp != stamp_) {
    for (int64_t i = 0; i < kPrefetchDistance; i += 64) __builtin_prefetch(first_weights + i);
    for (int row = 0; row < num_rows_; ++row) MakeRow(row, worker, mine + row * shared_.stride_bytes);
    stamp = stamp_;
  }
  return {shared_.type, mine, shared_.stride_bytes};
}

void Operand::MakeRow(int row, int worker, uint8_t* out) const {
  const float* x = source_.row(row);
  const bool plain = shared_.type == ActivationType::kF32;
  if (source_.norm != nullptr) {
    uint8_t* mine = context_.worker_rows.data<uint8_t>() + static_cast<size_t>(worker) * worker_bytes_;
    float* normed = reinterpret_cast<float*>(plain ? out : mine + kFewRows * shared_.stride_bytes);
    context_.Norm(*source_.norm, x, k_, normed);
    x = normed;
  } else if (plain) {
    std::copy_n(x, k_, reinterpret_cast<float*>(out));
  }
  if (!plain) context_.linear.quantize[static_cast<int>(shared_.type)](x, k_, out);
}

}  // namespace sluice
