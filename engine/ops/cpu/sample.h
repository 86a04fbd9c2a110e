// Ops::Sample and Ops::Logprobs on the CPU. The rule is that of engine/ops/sampling.h, without sorting the vocabulary:
// the survivors of all filters are {value > cut} and {value == cut, token <= last_tied}, and the cut is found among the
// few largest values.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/ops/cpu/cpu_context.h"

namespace sluice {

// Logits of a step: [rows][stride], `vocab` of them valid.
struct LogitsView {
  const float* data = nullptr;
  int64_t stride = 0;
  int64_t vocab = 0;

  const float* row(int32_t i) const { return data + i * stride; }
};

class CpuSampler {
 public:
  // Room for `max_rows` rows at a time (more are done in several goes) over `vocab` tokens.
  absl::Status Reserve(CpuContext& context, int32_t max_rows, int64_t vocab);

  void Sample(CpuContext& context, const LogitsView& logits, std::span<const SampleRow> rows,
              std::span<SampleResult> results);
  void Logprobs(CpuContext& context, const LogitsView& logits, std::span<const LogprobRow> rows,
                std::span<TokenLogprobs> results);

 private:
  // One row on its way to a token or a report.
  struct Job {
    const float* raw;
    const float* logits;      // raw, or with penalties, bias and masks applied
    const SampleRow* row;     // nullptr: `token` is known
    SampleResult* result;     // nullptr: `token` is known
    TokenLogprobs* logprobs;  // nullptr: not wanted
    int32_t num_top, token;
    bool usable;  // no NaN, no +inf, something finite
    float raw_max, max;
    uint64_t raw_mass, mass;
    bool draws;       // temperature above 0
    bool filtered;    // by top_k or top_p: a cut must be found
    float min_value;  // of logits / temperature, by min_p
  };
  // What was found in one segment of a job's vocabulary.
  struct Part {
    ScanResult raw, adjusted;
    uint64_t raw_mass, mass;
    TokenValue best;
  };
  struct Cut {
    float value;
    int32_t last_tied;
  };

  void Run(CpuContext& context, int64_t vocab);
  void Adjust(const Job& job, float* adjusted, int32_t* counts, int64_t vocab) const;
  void Scan(CpuContext& context, int64_t vocab);
  void MergeScan(const FloatKernels& floats, int64_t vocab, Job& job, const Part* parts) const;
  void Pass(CpuContext& context, int64_t vocab);
  void MergePass(Job& job, const Part* parts) const;
  void Finish(const CpuContext& context, Job& job, int64_t vocab, TokenValue* candidates) const;
  Cut FindCut(const FloatKernels& floats, const Job& job, int64_t vocab, TokenValue* candidates) const;
  void Report(const FloatKernels& floats, const Job& job, int64_t vocab, TokenValue* candidates) const;

  int32_t max_rows_ = 0;
  int64_t vocab_ = 0, num_segments_ = 0;
  std::vector<Job> jobs_;
  std::vector<Part> parts_;              // [job][segment]
  std::shared_ptr<uint8_t> adjusted_;    // [max_rows][vocab] floats
  std::shared_ptr<uint8_t> counts_;      // [worker][vocab] int32, zero between uses
  std::shared_ptr<uint8_t> candidates_;  // [worker][vocab] TokenValue
};

}  // namespace sluice
