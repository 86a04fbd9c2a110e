// What an engine is told at its start. Plain data; the limits bind the scheduler and Engine::Submit.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/numeric/int128.h"
#include "engine/base/layer_types.h"
#include "engine/base/numerics.h"

namespace sluice {

struct EngineOptions {
  int32_t max_model_len = 0;  // tokens of prompt + output one sequence may have
  int32_t vocab_size = 0;
  std::vector<int32_t> eos_token_ids;
  int32_t block_size = 16;  // tokens per KV block
  int32_t num_blocks = 0;   // blocks of the pool
  // By KV group of the model (engine/model/kv_groups.h): what its layers let a query see. Blocks that no later query of
  // a sequence can see go back to the pool.
  std::vector<AttentionMask> kv_groups = {AttentionMask{}};
  NumericsOptions numerics;
  int32_t max_num_seqs = 64;             // sequences in one step
  int32_t max_num_batched_tokens = 512;  // rows in one step; at least max_num_seqs, so that every decode has its row
  // Prefill rows in a step that also carries decodes: bounds how long a prompt can delay the next token of the others.
  // 0: a quarter of max_num_batched_tokens, but at least 64. Never more than the step has room for.
  int32_t max_prefill_tokens_beside_decodes = 0;
  // Whether a waiting sequence is let in only if the pool is expected to carry it to its end beside those that run
  // (KvForecast). If not, it is let in as soon as its prompt has room, and preempted when the pool runs out.
  bool admit_by_forecast = true;
  // Whether full blocks outlive their sequences and serve others whose prefix is the same and computed in the same way, bit for
  // bit (scheduler/prefix_cache.h). Off unless asked for: who measures or tests computing means to compute.
  bool prefix_cache = false;
  absl::uint128 prefix_cache_root = 0;  // random and secret where requests are not to be trusted (scheduler/prefix_index.h)
  // Waiting sequences, and their tokens: Submit refuses beyond, unless nothing is waiting.
  int32_t max_queued_requests = 1024;
  int64_t max_queued_tokens = 1 << 20;
  // Submit refuses what would wait longer to be admitted, as far as the pace of the queue is known and unless nothing is
  // waiting; 0: never.
  int32_t max_queue_seconds = 60;
};

}  // namespace sluice
