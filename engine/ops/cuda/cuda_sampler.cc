#include "engine/ops/cuda/cuda_sampler.h"

#include <algorithm>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/token_bitmask.h"

namespace sluice {
namespace {

int64_t Rounded(int64_t bytes) { return (bytes + 255) / 256 * 256; }

template <typename T>
int64_t Bytes(const std::vector<T>& values) {
  return static_cast<int64_t>(values.size() * sizeof(T));
}

// Grows `buffer` to `bytes`; new memory is zero if asked for.
absl::Status Grow(Device* device, DeviceBuffer* buffer, int64_t bytes, bool zero = false) {
  if (buffer->bytes() >= bytes) return absl::OkStatus();
  *buffer = DeviceBuffer();
  SLUICE_ASSIGN_OR_RETURN(*buffer, DeviceBuffer::Create(device, bytes));
  if (zero) device->Zero(buffer->data(), bytes);
  return absl::OkStatus();
}

// Of a report: log-probabilities, ranks, most likely tokens, their log-probabilities.
int64_t ReportWords(int32_t num_rows, int32_t max_top) { return int64_t{num_rows} * (2 + 2 * int64_t{max_top}); }

}  // namespace

absl::Status CudaSampler::Exchange::Reserve(Device* owner, int64_t bytes) {
  if (device.bytes() >= bytes) return absl::OkStatus();
  const int64_t larger = std::max(bytes, 2 * device.bytes());
  SLUICE_ASSIGN_OR_RETURN(host, DeviceBuffer::CreatePinned(owner, larger));
  SLUICE_ASSIGN_OR_RETURN(device, DeviceBuffer::Create(owner, larger));
  return absl::OkStatus();
}

absl::Status CudaSampler::LogprobReport::Reserve(Device* owner, int32_t rows, int32_t top) {
  SLUICE_RETURN_IF_ERROR(request.Reserve(owner, 2 * Rounded(rows * int64_t{sizeof(int32_t)})));
  return result.Reserve(owner, ReportWords(rows, top) * int64_t{sizeof(float)});
}

absl::Status CudaSampler::Reserve(CudaContext& context, const StepLimits& limits) {
  Device* device = context.device();
  const int64_t cells = int64_t{context.max_logits} * context.vocab_size;
  const int64_t token_bytes = 2 * context.max_logits * int64_t{sizeof(int32_t)};
  SLUICE_RETURN_IF_ERROR(Grow(device, &scratch_, cells * int64_t{sizeof(float)}));
  SLUICE_RETURN_IF_ERROR(Grow(device, &counts_, cells * int64_t{sizeof(int32_t)}, /*zero=*/true));
  SLUICE_RETURN_IF_ERROR(Grow(device, &workspace_, cuda::SampleWorkspaceBytes(context.max_logits, context.vocab_size)));
  SLUICE_RETURN_IF_ERROR(Grow(device, &tokens_, token_bytes));
  for (Draw& draw : draws_) {
    if (draw.done == nullptr) {
      SLUICE_ASSIGN_OR_RETURN(draw.done, device->NewEvent());
    }
    if (draw.tokens.bytes() >= token_bytes) continue;
    SLUICE_ASSIGN_OR_RETURN(draw.tokens, DeviceBuffer::CreatePinned(device, token_bytes));
  }
  // Every list of a row names tokens of its sequence, but for those that the request names.
  const int32_t num_rows = context.max_logits;
  const int64_t listed = limits.max_context_tokens + num_rows * (1 + int64_t{limits.max_adjusted});
  const int64_t row_bytes = Rounded(num_rows * int64_t{sizeof(cuda::SampleRowData)}) +
                            Rounded(listed * int64_t{sizeof(int32_t)}) + Rounded(listed * int64_t{sizeof(float)}) +
                            num_rows * int64_t{TokenBitmaskWords(context.vocab_size)} * int64_t{sizeof(uint32_t)};
  for (Draw& draw : draws_) {
    SLUICE_RETURN_IF_ERROR(draw.rows.Reserve(device, row_bytes));
    SLUICE_RETURN_IF_ERROR(draw.logprobs.Reserve(device, num_rows, limits.max_logprobs));
  }
  SLUICE_RETURN_IF_ERROR(known_tokens_.Reserve(device, num_rows * int64_t{sizeof(int32_t)}));
  SLUICE_RETURN_IF_ERROR(known_report_.Reserve(device, num_rows, limits.max_logprobs));
  return Grow(device, &workspace_, cuda::LogprobWorkspaceBytes(num_rows, context.vocab_size, limits.max_logprobs));
}

absl::Status CudaSampler::SendRows(CudaContext& context, std::span<const SampleRow> rows, Exchange* exchange,
                                   cuda::SampleArgs* args) {
  row_data_.clear();
  ints_.clear();
  floats_.clear();
  const auto add = [&](std::span<const int32_t> tokens, int32_t* begin, int32_t* end) {
    *begin = static_cast<int32_t>(ints_.size());
    ints_.insert(ints_.end(), tokens.begin(), tokens.end());
    *end = static_cast<int32_t>(ints_.size());
  };
  int32_t num_words = 0;  // of bitmasks
  for (const SampleRow& row : rows) {
    cuda::SampleRowData data;
    static_cast<DrawParams&>(data) = row;
    data.logits_row = row.logits_row;
    data.position = row.position;
    data.allowed_begin = num_words;
    num_words += static_cast<int32_t>(row.allowed_tokens.size());
    data.allowed_end = num_words;
    const bool counts_output = row.frequency_penalty != 0 || row.presence_penalty != 0;
    const bool repeats = row.repetition_penalty != 1;
    if (repeats) add(row.prompt_tokens, &data.prompt_begin, &data.prompt_end);
    if (repeats || counts_output) add(row.output_tokens, &data.output_begin, &data.output_end);
    add(row.masked_tokens, &data.masked_begin, &data.masked_end);
    // Tokens and biases stand at the same places of their arrays.
    floats_.resize(ints_.size());
    data.bias_begin = static_cast<int32_t>(ints_.size());
    for (const LogitBias& bias : row.logit_bias) {
      ints_.push_back(bias.token);
      floats_.push_back(bias.bias);
    }
    data.bias_end = static_cast<int32_t>(ints_.size());
    row_data_.push_back(data);
  }
  const int64_t ints_at = Rounded(Bytes(row_data_)), floats_at = ints_at + Rounded(Bytes(ints_));
  const int64_t bitmasks_at = floats_at + Rounded(Bytes(floats_));
  const int64_t bytes = bitmasks_at + num_words * int64_t{sizeof(uint32_t)};
  SLUICE_RETURN_IF_ERROR(exchange->Reserve(context.device(), bytes));
  auto* host = exchange->host.as<std::byte>();
  std::memcpy(host, row_data_.data(), static_cast<size_t>(Bytes(row_data_)));
  if (!ints_.empty()) std::memcpy(host + ints_at, ints_.data(), static_cast<size_t>(Bytes(ints_)));
  if (!floats_.empty()) std::memcpy(host + floats_at, floats_.data(), static_cast<size_t>(Bytes(floats_)));
  std::byte* bitmask = host + bitmasks_at;
  for (const SampleRow& row : rows) {
    if (row.allowed_tokens.empty()) continue;
    SLUICE_CHECK(row.allowed_tokens.size() == static_cast<size_t>(TokenBitmaskWords(context.vocab_size)));
    std::memcpy(bitmask, row.allowed_tokens.data(), row.allowed_tokens.size_bytes());
    bitmask += row.allowed_tokens.size_bytes();
  }
  context.device()->Upload(exchange->device.data(), host, bytes);
  auto* device = exchange->device.as<std::byte>();
  args->rows = reinterpret_cast<const cuda::SampleRowData*>(device);
  args->ints = reinterpret_cast<const int32_t*>(device + ints_at);
  args->floats = reinterpret_cast<const float*>(device + floats_at);
  args->bitmasks = reinterpret_cast<const uint32_t*>(device + bitmasks_at);
  return absl::OkStatus();
}

absl::Status CudaSampler::Launch(CudaContext& context, const float* logits, std::span<const SampleRow> rows) {
  SLUICE_RETURN_IF_ERROR(context.status());
  SLUICE_CHECK(num_draws_ < draws_.size() && static_cast<int32_t>(rows.size()) <= context.max_logits);
  Device* device = context.device();
  Draw& draw = draws_[(first_draw_ + num_draws_) % draws_.size()];
  draw.num_logprobs.clear();
  for (const SampleRow& row : rows) draw.num_logprobs.push_back(row.num_logprobs);
  if (const auto num_rows = static_cast<int32_t>(rows.size()); num_rows > 0) {
    cuda::SampleArgs args;
    SLUICE_RETURN_IF_ERROR(SendRows(context, rows, &draw.rows, &args));
    args.num_rows = num_rows;
    args.vocab_size = context.vocab_size;
    args.logits = logits;
    args.scratch = scratch_.as<float>();
    args.counts = counts_.as<int32_t>();
    args.workspace = workspace_.data();
    args.tokens = tokens_.as<int32_t>();
    args.finite = args.tokens + num_rows;
    cuda::LaunchSample(args, context.stream());
    device->Download(draw.tokens.data(), tokens_.data(), 2 * num_rows * int64_t{sizeof(int32_t)});
  }
  const auto wanted = [](const std::optional<int32_t>& num_top) { return num_top.has_value(); };
  if (std::any_of(draw.num_logprobs.begin(), draw.num_logprobs.end(), wanted)) {
    logits_rows_.clear();
    num_top_.clear();
    for (const SampleRow& row : rows) {
      logits_rows_.push_back(row.logits_row);
      num_top_.push_back(row.num_logprobs.value_or(-1));
    }
    SLUICE_RETURN_IF_ERROR(LaunchLogprobs(context, logits, {logits_rows_, num_top_, drawn()}, &draw.logprobs));
  }
  device->Record(draw.done.get());
  ++num_draws_;
  return absl::OkStatus();
}

absl::Status CudaSampler::Take(CudaContext& context, std::span<SampleResult> results) {
  SLUICE_CHECK(num_draws_ > 0);
  const Draw& draw = draws_[first_draw_];
  SLUICE_CHECK(results.size() == draw.num_logprobs.size());
  first_draw_ = (first_draw_ + 1) % draws_.size();
  --num_draws_;
  SLUICE_RETURN_IF_ERROR(context.device()->Wait(*draw.done));
  const auto* tokens = draw.tokens.as<int32_t>();
  for (size_t i = 0; i < results.size(); ++i) {
    results[i].token = tokens[i];
    results[i].finite = tokens[results.size() + i] != 0;
    if (draw.num_logprobs[i].has_value()) {
      results[i].logprobs = draw.logprobs.Row(i, results[i].token, *draw.num_logprobs[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status CudaSampler::Logprobs(CudaContext& context, const float* logits, std::span<const LogprobRow> rows,
                                   std::span<TokenLogprobs> results) {
  SLUICE_CHECK(rows.size() == results.size());
  SLUICE_RETURN_IF_ERROR(context.status());
  if (rows.empty()) return absl::OkStatus();
  Device* device = context.device();
  logits_rows_.clear();
  num_top_.clear();
  known_ints_.clear();
  for (const LogprobRow& row : rows) {
    logits_rows_.push_back(row.logits_row);
    num_top_.push_back(row.num_top);
    known_ints_.push_back(row.token);
  }
  SLUICE_RETURN_IF_ERROR(known_tokens_.Reserve(device, Bytes(known_ints_)));
  std::memcpy(known_tokens_.host.data(), known_ints_.data(), static_cast<size_t>(Bytes(known_ints_)));
  device->Upload(known_tokens_.device.data(), known_tokens_.host.data(), Bytes(known_ints_));
  SLUICE_RETURN_IF_ERROR(LaunchLogprobs(
      context, logits, {logits_rows_, num_top_, known_tokens_.device.as<const int32_t>()}, &known_report_));
  SLUICE_RETURN_IF_ERROR(device->Synchronize());
  for (size_t i = 0; i < rows.size(); ++i) results[i] = known_report_.Row(i, rows[i].token, rows[i].num_top);
  return absl::OkStatus();
}

absl::Status CudaSampler::LaunchLogprobs(CudaContext& context, const float* logits, const LogprobRequest& request,
                                         LogprobReport* report) {
  Device* device = context.device();
  const auto num_rows = static_cast<int32_t>(request.logits_rows.size());
  const int32_t max_top = std::max(0, *std::max_element(request.num_top.begin(), request.num_top.end()));
  report->num_rows = num_rows;
  report->max_top = max_top;
  const int64_t row_ints = Rounded(num_rows * int64_t{sizeof(int32_t)}) / int64_t{sizeof(int32_t)};
  SLUICE_RETURN_IF_ERROR(report->request.Reserve(device, 2 * row_ints * int64_t{sizeof(int32_t)}));
  auto* host = report->request.host.as<int32_t>();
  std::copy(request.logits_rows.begin(), request.logits_rows.end(), host);
  std::copy(request.num_top.begin(), request.num_top.end(), host + row_ints);
  device->Upload(report->request.device.data(), host, 2 * row_ints * int64_t{sizeof(int32_t)});
  SLUICE_RETURN_IF_ERROR(Grow(device, &workspace_, cuda::LogprobWorkspaceBytes(num_rows, context.vocab_size, max_top)));

  const int64_t words = ReportWords(num_rows, max_top);
  SLUICE_RETURN_IF_ERROR(report->result.Reserve(device, words * int64_t{sizeof(float)}));
  cuda::LogprobArgs args;
  args.num_rows = num_rows;
  args.vocab_size = context.vocab_size;
  args.logits = logits;
  args.logits_rows = report->request.device.as<int32_t>();
  args.num_top = args.logits_rows + row_ints;
  args.tokens = request.tokens;
  args.max_top = max_top;
  args.workspace = workspace_.data();
  args.logprobs = report->result.device.as<float>();
  args.ranks = reinterpret_cast<int32_t*>(args.logprobs + num_rows);
  args.top_tokens = args.ranks + num_rows;
  args.top_logprobs = reinterpret_cast<float*>(args.top_tokens + int64_t{num_rows} * max_top);
  cuda::LaunchLogprobs(args, context.stream());
  device->Download(report->result.host.data(), report->result.device.data(), words * int64_t{sizeof(float)});
  return absl::OkStatus();
}

TokenLogprobs CudaSampler::LogprobReport::Row(size_t row, int32_t token, int32_t num_top) const {
  const auto* logprobs = result.host.as<float>();
  const auto* ranks = reinterpret_cast<const int32_t*>(logprobs + num_rows);
  const int32_t* top_tokens = ranks + num_rows;
  const auto* top_logprobs = reinterpret_cast<const float*>(top_tokens + int64_t{num_rows} * max_top);
  TokenLogprobs logprobs_of_row;
  logprobs_of_row.chosen = {token, logprobs[row]};
  logprobs_of_row.rank = ranks[row];
  const size_t first = row * static_cast<size_t>(max_top);
  for (size_t i = first; i < first + static_cast<size_t>(num_top); ++i) {
    logprobs_of_row.top.push_back({top_tokens[i], top_logprobs[i]});
  }
  return logprobs_of_row;
}

}  // namespace sluice
