// Ops::LaunchSample, TakeSamples and Logprobs on the GPU: what the rows ask for goes there in one copy, the answers
// come back in one. Two launches may be in flight: each has pinned memory of its own.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/ops/cuda/cuda_context.h"
#include "engine/ops/cuda/kernels/sample.h"

namespace sluice {

class CudaSampler {
 public:
  // Memory for all that launches within `limits` can ask for; what goes beyond, but for rows, allocates later.
  absl::Status Reserve(CudaContext& context, const StepLimits& limits);

  // `logits` [., vocab_size] f32 on the device, finished. Errors are the device's faults.
  absl::Status Launch(CudaContext& context, const float* logits, std::span<const SampleRow> rows);
  absl::Status Take(CudaContext& context, std::span<SampleResult> results);
  absl::Status Logprobs(CudaContext& context, const float* logits, std::span<const LogprobRow> rows,
                        std::span<TokenLogprobs> results);

  // On the device, at the same place for ever once there has been a Reserve: what the last launch drew for its rows.
  const int32_t* drawn() const { return tokens_.as<const int32_t>(); }

 private:
  // Device memory and a pinned copy of it, grown when needed.
  struct Exchange {
    DeviceBuffer host, device;
    absl::Status Reserve(Device* owner, int64_t bytes);
  };
  // Log-probabilities on their way: of `num_rows` rows, up to `max_top` of the most likely tokens each.
  struct LogprobReport {
    Exchange request, result;
    int32_t num_rows = 0, max_top = 0;
    absl::Status Reserve(Device* owner, int32_t rows, int32_t top);
    TokenLogprobs Row(size_t row, int32_t token, int32_t num_top) const;
  };
  struct Draw {
    Exchange rows;
    DeviceBuffer tokens;  // pinned: tokens, then whether each is finite
    LogprobReport logprobs;
    std::vector<std::optional<int32_t>> num_logprobs;  // by row
    std::unique_ptr<Device::Event> done;
  };
  struct LogprobRequest {
    std::span<const int32_t> logits_rows, num_top;  // parallel
    const int32_t* tokens = nullptr;                // on the device
  };

  absl::Status SendRows(CudaContext& context, std::span<const SampleRow> rows, Exchange* exchange,
                        cuda::SampleArgs* args);
  absl::Status LaunchLogprobs(CudaContext& context, const float* logits, const LogprobRequest& request,
                              LogprobReport* report);

  std::array<Draw, 2> draws_;  // a ring
  size_t first_draw_ = 0, num_draws_ = 0;
  Exchange known_tokens_;  // of Logprobs
  LogprobReport known_report_;
  DeviceBuffer tokens_, scratch_, counts_, workspace_;
  std::vector<cuda::SampleRowData> row_data_;
  std::vector<int32_t> ints_, logits_rows_, num_top_, known_ints_;
  std::vector<float> floats_;
};

}  // namespace sluice
