#include "engine/ops/cuda/cuda_moe.h"

#include "engine/ops/cuda/cuda_linear.h"
#include "engine/ops/cuda/kernels/gemm.h"
#include "engine/ops/cuda/kernels/routing.h"

namespace sluice {
namespace {

// The router's logits and RouteArrays in one piece of scratch memory.
struct Route {
  float* logits = nullptr;
  cuda::RouteArrays arrays;
};

std::optional<Route> RouteMemory(CudaContext& context, const MoeRouting& routing) {
  const int64_t places = int64_t{context.max_tokens} * routing.num_experts_per_token;
  const int64_t logits = int64_t{context.max_tokens} * routing.num_experts;
  auto* words = context.Get<int32_t>(Scratch::kRoute, logits + 5 * places + routing.num_experts + 1);
  if (words == nullptr) return std::nullopt;
  const auto take = [&](int64_t count) {
    int32_t* at = words;
    words += count;
    return at;
  };
  Route route;
  route.logits = reinterpret_cast<float*>(take(logits));
  route.arrays.choices = take(places);
  route.arrays.weights = reinterpret_cast<float*>(take(places));
  route.arrays.input_rows = take(places);
  route.arrays.place_weights = reinterpret_cast<float*>(take(places));
  route.arrays.row_places = take(places);
  route.arrays.expert_starts = take(routing.num_experts + 1);
  return route;
}

// h in f32 as well: routers tell experts apart by small differences.
float* NormedF32(CudaContext& context, const MoeArgs& args) {
  if (!args.norm.has_value()) return ResidualOf(args.x);
  float* normed = context.RowsF32(Scratch::kNormedF32, args.x->cols());
  if (normed == nullptr) return nullptr;
  cuda::NormArgs norm;
  norm.num_rows = context.num_tokens();
  norm.d = static_cast<int32_t>(args.x->cols());
  norm.x = ResidualOf(args.x);
  norm.norm = ViewOf(*args.norm);
  norm.y_f32 = normed;
  cuda::LaunchNorm(norm, context.stream());
  return normed;
}

cuda::GroupedGemmArgs MakeGrouped(CudaContext& context, const CudaExperts& experts, const Route& route,
                                  int32_t num_places, const GemmInput& x) {
  cuda::GroupedGemmArgs grouped;
  grouped.each.m = num_places;
  grouped.each.x = x.data;
  grouped.each.x_element = context.element();
  grouped.each.x_stride = x.stride;
  grouped.each.w = experts.first();
  grouped.num_experts = experts.num_experts();
  grouped.w_expert_bytes = experts.expert_bytes();
  grouped.expert_starts = route.arrays.expert_starts;
  return grouped;
}

// The chosen experts' results, one f32 row a place.
float* RunExperts(CudaContext& context, const MoeArgs& args, const Route& route, const GemmInput& h) {
  const CudaExperts& gate_up = ExpertsOf(args.gate_up);
  const CudaExperts& down = ExpertsOf(args.down);
  const int32_t per_token = args.routing.num_experts_per_token;
  const int32_t num_places = context.num_tokens() * per_token;
  const int64_t max_places = int64_t{context.max_tokens} * per_token;
  const int64_t width = gate_up.out_features() / 2;
  void* hidden = context.Get(Scratch::kHidden, max_places * width * context.element_bytes());
  float* results = context.Get<float>(Scratch::kPlaces, max_places * down.out_features());
  if (hidden == nullptr || results == nullptr) return nullptr;

  cuda::GroupedGemmArgs first = MakeGrouped(context, gate_up, route, num_places, h);
  first.each.bias = DataOf(args.gate_up_bias);
  first.each.epilogue = cuda::Epilogue::kGated;
  first.each.activation = args.activation;
  first.each.alpha = args.alpha;
  first.each.limit = args.limit;
  first.each.out = hidden;
  first.each.out_element = context.element();
  first.each.out_stride = width;
  first.input_rows = route.arrays.input_rows;
  if (args.weight_on_input) first.input_scale = route.arrays.place_weights;
  cuda::LaunchGroupedGemm(first, context.stream());

  cuda::GroupedGemmArgs second = MakeGrouped(context, down, route, num_places, {hidden, width});
  second.each.bias = DataOf(args.down_bias);
  second.each.out = results;
  second.each.out_element = cuda::Element::kF32;
  second.each.out_stride = down.out_features();
  cuda::LaunchGroupedGemm(second, context.stream());
  return results;
}

}  // namespace

void CudaMoe(CudaContext& context, const MoeArgs& args) {
  const int32_t d = static_cast<int32_t>(args.x->cols());
  const std::optional<Route> route = RouteMemory(context, args.routing);
  const float* h_f32 = NormedF32(context, args);
  const GemmInput h = NormedInput(context, args.x, args.norm);
  float* sum = context.RowsF32(Scratch::kSum, d);
  if (!route.has_value() || h_f32 == nullptr || sum == nullptr) return;

  MultiplyToF32(context, args.router, {h_f32, d}, args.router_bias, route->logits);
  cuda::RouteArgs choose;
  choose.num_rows = context.num_tokens();
  choose.logits = route->logits;
  choose.selection_bias = DataOf(args.selection_bias);
  choose.row_sequences = context.step.step().row_sequences;
  choose.routing = args.routing;
  choose.out = route->arrays;
  cuda::LaunchRoute(choose, context.stream());
  const float* results = RunExperts(context, args, *route, h);

  float* shared = nullptr;
  if (args.shared_gate_up != nullptr) {
    shared = context.RowsF32(Scratch::kShared, d);
    const HiddenArgs hidden{args.activation, args.alpha, args.limit, true};
    const GemmInput inner = Hidden(context, args.shared_gate_up, h, nullptr, hidden);
    MultiplyToF32(context, args.shared_down, inner, nullptr, shared);
  }
  if (!context.status().ok()) return;

  cuda::CombineArgs combine;
  combine.num_rows = context.num_tokens();
  combine.num_experts_per_token = args.routing.num_experts_per_token;
  combine.d = d;
  combine.y = results;
  combine.weights = args.weight_on_input ? nullptr : route->arrays.weights;
  combine.row_places = route->arrays.row_places;
  combine.shared = shared;
  combine.sum = sum;
  cuda::LaunchCombine(combine, context.stream());
  cuda::AddNormedArgs add;
  add.num_rows = context.num_tokens();
  add.d = d;
  add.y = sum;
  add.has_norm = args.post_norm.has_value();
  if (add.has_norm) add.norm = ViewOf(*args.post_norm);
  add.x = ResidualOf(args.x);
  cuda::LaunchAddNormed(add, context.stream());
}

}  // namespace sluice
