#include <cstdint>

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/reduce.cuh"
#include "engine/ops/cuda/kernels/routing.h"

namespace sluice::cuda {
namespace {

constexpr int kMaxChoices = 32;

struct Routing {
  int32_t num_rows, num_experts, num_choices;
  const float* logits;
  const float* selection_bias;
  const int32_t* row_sequences;
  MoeScore score;
  int32_t num_groups, num_kept;
  MoeGroupScore group_score;
  bool renormalize;
  float renormalize_eps, routed_scale;
  RouteArrays out;
};

// ---------------------------------------------------------------- which experts, with what weights

template <int kMaxExperts>
struct RouteShared {
  int32_t choices[kMaxChoices];
  double group_scores[kMaxExperts];
  double scores[kMaxExperts];
  double choice_scores[kMaxExperts];
};

// The same without its size.
struct RouteArraysOfWarp {
  int32_t* choices;
  double* group_scores;
  double* scores;
  double* choice_scores;
};

// NaN above everything, as in ChooseExperts.
__device__ bool IsAbove(double a, double b) { return a > b || (isnan(a) && !isnan(b)); }

__device__ double Larger(double a, double b) { return IsAbove(b, a) ? b : a; }

// What ChooseExperts calls Score. Sums take experts ascending, each lane for itself: their bits decide ties.
__device__ void Score(const Routing& args, const float* logits, int32_t lane, const RouteArraysOfWarp& shared) {
  const int32_t n = args.num_experts;
  double best = -INFINITY;
  for (int32_t e = lane; e < n; e += kWarpLanes) {
    const double r = logits[e];
    shared.scores[e] = args.score == MoeScore::kSigmoid ? 1 / (1 + exp(-r)) : r;
    best = Larger(best, r);
  }
  if (args.score == MoeScore::kSoftmaxAll) {
    best = WarpReduce(best, [](double a, double b) { return Larger(a, b); });
    for (int32_t e = lane; e < n; e += kWarpLanes) shared.scores[e] = exp(shared.scores[e] - best);
    __syncwarp();
    double sum = 0;
    for (int32_t e = 0; e < n; ++e) sum += shared.scores[e];
    __syncwarp();
    for (int32_t e = lane; e < n; e += kWarpLanes) shared.scores[e] /= sum;
  }
  for (int32_t e = lane; e < n; e += kWarpLanes) {
    shared.choice_scores[e] =
        shared.scores[e] + (args.selection_bias != nullptr ? double(args.selection_bias[e]) : 0.0);
  }
  __syncwarp();
}

__device__ double GroupScore(MoeGroupScore kind, const double* scores, int32_t n) {
  double best = -INFINITY, second = -INFINITY;
  for (int32_t i = 0; i < n; ++i) {
    if (IsAbove(scores[i], best)) {
      second = best;
      best = scores[i];
    } else if (IsAbove(scores[i], second)) {
      second = scores[i];
    }
  }
  return kind == MoeGroupScore::kTop2Sum ? best + second : best;
}

// Bit i: the lane's expert lane + 32 i can be chosen, for its group is kept.
__device__ uint32_t OpenExperts(const Routing& args, int32_t lane, const RouteArraysOfWarp& shared) {
  const int32_t per_group = args.num_experts / args.num_groups;
  if (args.num_kept < args.num_groups) {
    for (int32_t g = lane; g < args.num_groups; g += kWarpLanes) {
      shared.group_scores[g] = GroupScore(args.group_score, shared.choice_scores + g * per_group, per_group);
    }
    __syncwarp();
  }
  uint32_t open = 0;
  for (int32_t e = lane; e < args.num_experts; e += kWarpLanes) {
    int32_t groups_before = 0;
    if (args.num_kept < args.num_groups) {
      const int32_t group = e / per_group;
      const double score = shared.group_scores[group];
      for (int32_t g = 0; g < args.num_groups; ++g) {
        const double other = shared.group_scores[g];
        groups_before += IsAbove(other, score) || (g < group && !IsAbove(score, other));
      }
    }
    if (groups_before < args.num_kept) open |= 1u << e / kWarpLanes;
  }
  return open;
}

struct Candidate {
  double score;
  int32_t expert;  // num_experts: none
  int32_t unused;
};

__device__ Candidate Better(const Candidate& a, const Candidate& b) {
  if (IsAbove(a.score, b.score)) return a;
  if (IsAbove(b.score, a.score)) return b;
  return a.expert < b.expert ? a : b;
}

// shared.choices[0, num_choices), ascending.
__device__ void Choose(const Routing& args, int32_t lane, const RouteArraysOfWarp& shared) {
  uint32_t open = OpenExperts(args, lane, shared), chosen = 0;
  for (int32_t c = 0; c < args.num_choices; ++c) {
    Candidate best = {-INFINITY, args.num_experts, 0};
    for (uint32_t left = open; left != 0; left &= left - 1) {
      const int32_t e = lane + (__ffs(int(left)) - 1) * kWarpLanes;
      best = Better(best, {shared.choice_scores[e], e, 0});
    }
    best = WarpReduce(best, [](const Candidate& a, const Candidate& b) { return Better(a, b); });
    const uint32_t bit = best.expert % kWarpLanes == lane ? 1u << best.expert / kWarpLanes : 0;
    open &= ~bit;
    chosen |= bit;
  }
  int32_t count = 0;
  for (int i = 0; i * kWarpLanes < args.num_experts; ++i) {
    const bool mine = chosen >> i & 1;
    const unsigned lanes = __ballot_sync(kAllLanes, mine);
    if (mine) shared.choices[count + __popc(lanes & ((1u << lane) - 1))] = lane + i * kWarpLanes;
    count += __popc(lanes);
  }
  __syncwarp();
}

// What ChooseExperts calls Weigh, for the choice of this lane.
__device__ float Weigh(const Routing& args, int32_t lane, const RouteArraysOfWarp& shared) {
  const auto score = [&](int32_t c) -> double& { return shared.scores[shared.choices[c]]; };
  const auto sum = [&] {
    double total = 0;
    for (int32_t c = 0; c < args.num_choices; ++c) total += score(c);
    return total;
  };
  const bool mine = lane < args.num_choices;
  if (args.score == MoeScore::kSoftmaxTopK) {
    double best = score(0);
    for (int32_t c = 1; c < args.num_choices; ++c) best = Larger(best, score(c));
    __syncwarp();
    if (mine) score(lane) = exp(score(lane) - best);
    __syncwarp();
    const double total = sum();
    __syncwarp();
    if (mine) score(lane) /= total;
    __syncwarp();
  }
  const double divisor = args.renormalize ? sum() + double(args.renormalize_eps) : 1;
  return mine ? float(score(lane) / divisor * double(args.routed_scale)) : 0;
}

// A warp a row.
template <int kMaxExperts>
__global__ void __launch_bounds__(kWarpLanes) RouteKernel(const __grid_constant__ Routing args) {
  SLUICE_SHARED(RouteShared<kMaxExperts>, memory);
  const RouteArraysOfWarp shared = {memory.choices, memory.group_scores, memory.scores, memory.choice_scores};
  const int32_t row = blockIdx.x, lane = threadIdx.x;
  const int64_t place = int64_t{row} * args.num_choices + lane;
  if (args.row_sequences != nullptr && args.row_sequences[row] < 0) {
    if (lane < args.num_choices) {
      args.out.choices[place] = -1;
      args.out.weights[place] = 0;
    }
    return;
  }
  Score(args, args.logits + int64_t{row} * args.num_experts, lane, shared);
  Choose(args, lane, shared);
  const float weight = Weigh(args, lane, shared);
  if (lane < args.num_choices) {
    args.out.choices[place] = shared.choices[lane];
    args.out.weights[place] = weight;
  }
}

// ---------------------------------------------------------------- places

constexpr int kPlaceWarps = 8;
constexpr int kPlaceThreads = kPlaceWarps * kWarpLanes;
constexpr int kPlaceLoads = 8;  // of a thread, in flight at a time
constexpr int32_t kNoChoice = -2;

struct PlaceShared {
  int32_t partials[kPlaceWarps];
  int32_t counts[kPlaceLoads][kPlaceWarps];
};

// Choices first + threadIdx.x + kPlaceThreads * {0, 1, ...}; kNoChoice after the last.
__device__ __forceinline__ void LoadChoices(const Routing& args, int32_t first, int32_t count,
                                            int32_t (&choices)[kPlaceLoads]) {
#pragma unroll
  for (int l = 0; l < kPlaceLoads; ++l) {
    const int32_t i = first + l * kPlaceThreads + int32_t(threadIdx.x);
    choices[l] = i < count ? args.out.choices[i] : kNoChoice;
  }
}

// A block an expert. It counts the choices of lower experts, which gives its first place, then its own in the order of
// rows: no block needs what another finds.
__global__ void __launch_bounds__(kPlaceThreads) PlaceKernel(const __grid_constant__ Routing args) {
  SLUICE_SHARED(PlaceShared, shared);
  const int32_t expert = blockIdx.x, count = args.num_rows * args.num_choices;
  const int32_t lane = threadIdx.x % kWarpLanes, warp = threadIdx.x / kWarpLanes;
  int32_t choices[kPlaceLoads], lower = 0;
  for (int32_t first = 0; first < count; first += kPlaceThreads * kPlaceLoads) {
    LoadChoices(args, first, count, choices);
#pragma unroll
    for (int l = 0; l < kPlaceLoads; ++l) {
      lower += choices[l] >= 0 && choices[l] < expert;
      if (expert == 0 && choices[l] == -1) args.out.row_places[first + l * kPlaceThreads + int32_t(threadIdx.x)] = -1;
    }
  }
  int32_t place = BlockReduce(lower, Plus(), shared.partials);
  if (threadIdx.x == 0) args.out.expert_starts[expert] = place;
  for (int32_t first = 0; first < count; first += kPlaceThreads * kPlaceLoads) {
    LoadChoices(args, first, count, choices);
    unsigned lanes[kPlaceLoads];
#pragma unroll
    for (int l = 0; l < kPlaceLoads; ++l) {
      lanes[l] = __ballot_sync(kAllLanes, choices[l] == expert);
      if (lane == 0) shared.counts[l][warp] = __popc(lanes[l]);
    }
    __syncthreads();
#pragma unroll
    for (int l = 0; l < kPlaceLoads; ++l) {
      int32_t to = place + __popc(lanes[l] & ((1u << lane) - 1));
#pragma unroll
      for (int w = 0; w < kPlaceWarps; ++w) {
        if (w < warp) to += shared.counts[l][w];
        place += shared.counts[l][w];
      }
      if (choices[l] != expert) continue;
      const int32_t i = first + l * kPlaceThreads + int32_t(threadIdx.x);
      args.out.input_rows[to] = i / args.num_choices;
      args.out.place_weights[to] = args.out.weights[i];
      args.out.row_places[i] = to;
    }
    __syncthreads();  // the next round writes the counts
  }
  if (threadIdx.x == 0 && expert == args.num_experts - 1) args.out.expert_starts[args.num_experts] = place;
}

template <int kMaxExperts>
void LaunchChoice(const Routing& routing, Stream stream) {
  SLUICE_LAUNCH(RouteKernel<kMaxExperts>, dim3(unsigned(routing.num_rows)), dim3(kWarpLanes),
                sizeof(RouteShared<kMaxExperts>), stream, routing);
}

}  // namespace

void LaunchRoute(const RouteArgs& args, Stream stream) {
  const MoeRouting& r = args.routing;
  const MoeGroups groups = r.groups.value_or(MoeGroups{});
  const Routing routing = {
      args.num_rows,      r.num_experts,     r.num_experts_per_token, args.logits,     args.selection_bias,
      args.row_sequences, r.score,           groups.num_groups,       groups.num_kept, groups.score,
      r.renormalize,      r.renormalize_eps, r.routed_scale,          args.out};
  if (args.num_rows > 0) {
    if (r.num_experts <= 64) {
      LaunchChoice<64>(routing, stream);
    } else if (r.num_experts <= 256) {
      LaunchChoice<256>(routing, stream);
    } else {
      LaunchChoice<1024>(routing, stream);
    }
  }
  SLUICE_LAUNCH(PlaceKernel, dim3(unsigned(r.num_experts)), dim3(kPlaceThreads), sizeof(PlaceShared), stream, routing);
}

}  // namespace sluice::cuda
