#include "engine/ops/cuda/cuda_sampler.h"

#include <algorithm>
#include <cstring>

#include "engine/base/check.h"

namespace sluice {
namespace {

int64_t Rounded(int64_t bytes) { return (bytes + 255) / 256 * 256; }

template <typename T>
int64_t Bytes(const std::vector<T>& values) {
  return static_cast<int64_t>(values.size() * sizeof(T));
}

// Grows `buffer` to `bytes`; new memory is zero if asked for. Kernels that use the old one have ended: the callers wait
// for the device before they return.
absl::Status Grow(Device* device, DeviceBuffer* buffer, int64_t bytes, bool zero = false) {
  if (buffer->bytes() >= bytes) return absl::OkStatus();
  *buffer = DeviceBuffer();
  SLUICE_ASSIGN_OR_RETURN(*buffer, DeviceBuffer::Create(device, bytes));
  if (zero) device->Zero(buffer->data(), bytes);
  return absl::OkStatus();
}

}  // namespace

absl::Status CudaSampler::Exchange::Reserve(Device* owner, int64_t bytes) {
  if (device.bytes() >= bytes) return absl::OkStatus();
  const int64_t larger = std::max(bytes, 2 * device.bytes());
  SLUICE_ASSIGN_OR_RETURN(host, DeviceBuffer::CreatePinned(owner, larger));
  SLUICE_ASSIGN_OR_RETURN(device, DeviceBuffer::Create(owner, larger));
  return absl::OkStatus();
}

absl::Status CudaSampler::SendRows(CudaContext& context, std::span<const SampleRow> rows, cuda::SampleArgs* args) {
  row_data_.clear();
  ints_.clear();
  floats_.clear();
  const auto add = [&](std::span<const int32_t> tokens, int32_t* begin, int32_t* end) {
    *begin = static_cast<int32_t>(ints_.size());
    ints_.insert(ints_.end(), tokens.begin(), tokens.end());
    *end = static_cast<int32_t>(ints_.size());
  };
  for (const SampleRow& row : rows) {
    cuda::SampleRowData data{};
    data.logits_row = row.logits_row;
    data.temperature = row.temperature;
    data.min_p = row.min_p;
    data.top_p = row.top_p;
    data.top_k = row.top_k;
    data.repetition_penalty = row.repetition_penalty;
    data.frequency_penalty = row.frequency_penalty;
    data.presence_penalty = row.presence_penalty;
    data.seed = row.seed;
    data.position = row.position;
    const bool counts_output = row.frequency_penalty != 0 || row.presence_penalty != 0;
    const bool repeats = row.repetition_penalty != 1;
    if (repeats) add(row.prompt_tokens, &data.prompt_begin, &data.prompt_end);
    if (repeats || counts_output) add(row.output_tokens, &data.output_begin, &data.output_end);
    add(row.masked_tokens, &data.masked_begin, &data.masked_end);
    // Tokens and biases stand at the same places of their arrays.
    floats_.resize(ints_.size());
    data.bias_begin = static_cast<int32_t>(ints_.size());
    for (const TokenBias& bias : row.logit_bias) {
      ints_.push_back(bias.token);
      floats_.push_back(bias.bias);
    }
    data.bias_end = static_cast<int32_t>(ints_.size());
    row_data_.push_back(data);
  }
  const int64_t ints_at = Rounded(Bytes(row_data_)), floats_at = ints_at + Rounded(Bytes(ints_));
  const int64_t bytes = floats_at + Bytes(floats_);
  SLUICE_RETURN_IF_ERROR(rows_.Reserve(context.device(), bytes));
  auto* host = rows_.host.as<std::byte>();
  std::memcpy(host, row_data_.data(), static_cast<size_t>(Bytes(row_data_)));
  if (!ints_.empty()) std::memcpy(host + ints_at, ints_.data(), static_cast<size_t>(Bytes(ints_)));
  if (!floats_.empty()) std::memcpy(host + floats_at, floats_.data(), static_cast<size_t>(Bytes(floats_)));
  context.device()->Upload(rows_.device.data(), host, bytes);
  auto* device = rows_.device.as<std::byte>();
  args->rows = reinterpret_cast<const cuda::SampleRowData*>(device);
  args->ints = reinterpret_cast<const int32_t*>(device + ints_at);
  args->floats = reinterpret_cast<const float*>(device + floats_at);
  return absl::OkStatus();
}

absl::Status CudaSampler::Sample(CudaContext& context, const float* logits, std::span<const SampleRow> rows,
                                 std::span<SampleResult> results) {
  SLUICE_CHECK(rows.size() == results.size());
  SLUICE_RETURN_IF_ERROR(context.status());
  if (rows.empty()) return absl::OkStatus();
  Device* device = context.device();
  const auto num_rows = static_cast<int32_t>(rows.size());
  const int64_t cells = int64_t{std::max(num_rows, context.max_logits)} * context.vocab_size;
  SLUICE_RETURN_IF_ERROR(Grow(device, &scratch_, cells * int64_t{sizeof(float)}));
  SLUICE_RETURN_IF_ERROR(Grow(device, &counts_, cells * int64_t{sizeof(int32_t)}, /*zero=*/true));
  SLUICE_RETURN_IF_ERROR(Grow(device, &workspace_,
                              cuda::SampleWorkspaceBytes(std::max(num_rows, context.max_logits), context.vocab_size)));
  SLUICE_RETURN_IF_ERROR(tokens_.Reserve(device, 2 * num_rows * int64_t{sizeof(int32_t)}));

  cuda::SampleArgs args;
  SLUICE_RETURN_IF_ERROR(SendRows(context, rows, &args));
  args.num_rows = num_rows;
  args.vocab_size = context.vocab_size;
  args.logits = logits;
  args.scratch = scratch_.as<float>();
  args.counts = counts_.as<int32_t>();
  args.workspace = workspace_.data();
  args.tokens = tokens_.device.as<int32_t>();
  args.finite = args.tokens + num_rows;
  cuda::LaunchSample(args, context.stream());
  device->Download(tokens_.host.data(), tokens_.device.data(), 2 * num_rows * int64_t{sizeof(int32_t)});

  const bool want_logprobs =
      std::any_of(rows.begin(), rows.end(), [](const SampleRow& row) { return row.num_logprobs.has_value(); });
  if (want_logprobs) {
    logits_rows_.clear();
    num_top_.clear();
    for (const SampleRow& row : rows) {
      logits_rows_.push_back(row.logits_row);
      num_top_.push_back(row.num_logprobs.value_or(-1));
    }
    SLUICE_RETURN_IF_ERROR(LaunchLogprobs(context, logits, {logits_rows_, num_top_, args.tokens}));
  }
  SLUICE_RETURN_IF_ERROR(device->Synchronize());
  const auto* tokens = tokens_.host.as<int32_t>();
  for (size_t i = 0; i < rows.size(); ++i) {
    results[i].token = tokens[i];
    results[i].finite = tokens[num_rows + i] != 0;
    if (rows[i].num_logprobs.has_value()) {
      results[i].logprobs = TakeLogprobs(i, results[i].token, *rows[i].num_logprobs);
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
  known_tokens_.clear();
  for (const LogprobRow& row : rows) {
    logits_rows_.push_back(row.logits_row);
    num_top_.push_back(row.num_top);
    known_tokens_.push_back(row.token);
  }
  SLUICE_RETURN_IF_ERROR(tokens_.Reserve(device, Bytes(known_tokens_)));
  std::memcpy(tokens_.host.data(), known_tokens_.data(), static_cast<size_t>(Bytes(known_tokens_)));
  device->Upload(tokens_.device.data(), tokens_.host.data(), Bytes(known_tokens_));
  SLUICE_RETURN_IF_ERROR(LaunchLogprobs(context, logits, {logits_rows_, num_top_, tokens_.device.as<const int32_t>()}));
  SLUICE_RETURN_IF_ERROR(device->Synchronize());
  for (size_t i = 0; i < rows.size(); ++i) results[i] = TakeLogprobs(i, rows[i].token, rows[i].num_top);
  return absl::OkStatus();
}

absl::Status CudaSampler::LaunchLogprobs(CudaContext& context, const float* logits, const LogprobRequest& request) {
  Device* device = context.device();
  const auto num_rows = static_cast<int32_t>(request.logits_rows.size());
  const int32_t max_top = std::max(0, *std::max_element(request.num_top.begin(), request.num_top.end()));
  logprob_rows_ = num_rows;
  max_top_ = max_top;
  const int64_t row_ints = Rounded(num_rows * int64_t{sizeof(int32_t)}) / int64_t{sizeof(int32_t)};
  SLUICE_RETURN_IF_ERROR(requests_.Reserve(device, 2 * row_ints * int64_t{sizeof(int32_t)}));
  auto* host = requests_.host.as<int32_t>();
  std::copy(request.logits_rows.begin(), request.logits_rows.end(), host);
  std::copy(request.num_top.begin(), request.num_top.end(), host + row_ints);
  device->Upload(requests_.device.data(), host, 2 * row_ints * int64_t{sizeof(int32_t)});
  SLUICE_RETURN_IF_ERROR(Grow(device, &workspace_, cuda::LogprobWorkspaceBytes(num_rows, context.vocab_size, max_top)));

  // logprobs, ranks, top tokens, top logprobs
  const int64_t words = int64_t{num_rows} * (2 + 2 * int64_t{max_top});
  SLUICE_RETURN_IF_ERROR(logprobs_.Reserve(device, words * int64_t{sizeof(float)}));
  cuda::LogprobArgs args;
  args.num_rows = num_rows;
  args.vocab_size = context.vocab_size;
  args.logits = logits;
  args.logits_rows = requests_.device.as<int32_t>();
  args.num_top = args.logits_rows + row_ints;
  args.tokens = request.tokens;
  args.max_top = max_top;
  args.workspace = workspace_.data();
  args.logprobs = logprobs_.device.as<float>();
  args.ranks = reinterpret_cast<int32_t*>(args.logprobs + num_rows);
  args.top_tokens = args.ranks + num_rows;
  args.top_logprobs = reinterpret_cast<float*>(args.top_tokens + int64_t{num_rows} * max_top);
  cuda::LaunchLogprobs(args, context.stream());
  device->Download(logprobs_.host.data(), logprobs_.device.data(), words * int64_t{sizeof(float)});
  return absl::OkStatus();
}

TokenLogprobs CudaSampler::TakeLogprobs(size_t row, int32_t token, int32_t num_top) const {
  const auto* logprobs = logprobs_.host.as<float>();
  const auto* ranks = reinterpret_cast<const int32_t*>(logprobs + logprob_rows_);
  const int32_t* top_tokens = ranks + logprob_rows_;
  const auto* top_logprobs = reinterpret_cast<const float*>(top_tokens + int64_t{logprob_rows_} * max_top_);
  TokenLogprobs result;
  result.chosen = {token, logprobs[row]};
  result.rank = ranks[row];
  const size_t first = row * static_cast<size_t>(max_top_);
  for (size_t i = first; i < first + static_cast<size_t>(num_top); ++i) {
    result.top.push_back({top_tokens[i], top_logprobs[i]});
  }
  return result;
}

}  // namespace sluice
