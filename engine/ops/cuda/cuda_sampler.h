// Ops::Sample and Ops::Logprobs on the GPU: what the rows ask for goes there in one copy, the answers come back in one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/ops/cuda/cuda_context.h"
#include "engine/ops/cuda/kernels/sample.h"

namespace sluice {

class CudaSampler {
 public:
  // `logits` [., vocab_size] f32 on the device, finished. Both wait for the device; errors are its faults.
  absl::Status Sample(CudaContext& context, const float* logits, std::span<const SampleRow> rows,
                      std::span<SampleResult> results);
  absl::Status Logprobs(CudaContext& context, const float* logits, std::span<const LogprobRow> rows,
                        std::span<TokenLogprobs> results);

 private:
  // Device memory and a pinned copy of it, grown when needed.
  struct Exchange {
    DeviceBuffer host, device;
    absl::Status Reserve(Device* owner, int64_t bytes);
  };
  struct LogprobRequest {
    std::span<const int32_t> logits_rows, num_top;  // parallel
    const int32_t* tokens = nullptr;                // on the device
  };

  absl::Status SendRows(CudaContext& context, std::span<const SampleRow> rows, cuda::SampleArgs* args);
  // Results are in the download exchange once the device has been waited for.
  absl::Status LaunchLogprobs(CudaContext& context, const float* logits, const LogprobRequest& request);
  TokenLogprobs TakeLogprobs(size_t row, int32_t token, int32_t num_top) const;

  Exchange rows_, tokens_, requests_, logprobs_;
  DeviceBuffer scratch_, counts_, workspace_;
  int32_t logprob_rows_ = 0, max_top_ = 0;  // shape of what logprobs_ holds
  std::vector<cuda::SampleRowData> row_data_;
  std::vector<int32_t> ints_, logits_rows_, num_top_, known_tokens_;
  std::vector<float> floats_;
};

}  // namespace sluice
