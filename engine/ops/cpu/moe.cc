#include "engine/ops/cpu/moe.h"

#include <algorithm>
#include <cstring>

#include "engine/base/status_macros.h"
#include "engine/ops/cpu/hidden_block.h"
#include "engine/ops/cpu/linear.h"
#include "engine/ops/cpu/operand.h"
#include "engine/ops/moe_routing.h"
#include "engine/ops/validate.h"

namespace sluice {
namespace {

const CpuExperts& ExpertsOf(const ExpertWeights* w) { return static_cast<const CpuExperts&>(*w); }

// y[i] += weight * (tile[i] (+ bias[i]))
void AddWeighted(const float* tile, const float* bias, float weight, int count, float* y) {
  if (bias == nullptr) {
    for (int i = 0; i < count; ++i) y[i] += weight * tile[i];
  } else {
    for (int i = 0; i < count; ++i) y[i] += weight * (tile[i] + bias[i]);
  }
}

// A row at an expert.
struct Place {
  int32_t row;
  float input_weight, output_weight;
};

// An expert and its rows, which are consecutive places. The shared expert is the last visit: all rows, with weight 1.
struct Visit {
  HiddenLayer up;
  const PackedLinear* down;
  const float* down_bias;
  int32_t first_place, num_rows;
  HiddenRows in, hidden;
  int64_t first_chunk;  // of the region that makes the hidden values

  int64_t num_row_blocks() const { return (num_rows + kRowBlock - 1) / kRowBlock; }
  int64_t num_chunks() const { return up.num_blocks() * num_row_blocks(); }
};

// Rows of all places of one kind of expert.
struct PlaceRows {
  HiddenRows in, hidden;
};

class MixtureStep {
 public:
  MixtureStep(CpuContext& context, const MoeArgs& args, MoeScratch& scratch)
      : context_(context),
        args_(args),
        scratch_(scratch),
        num_rows_(static_cast<size_t>(context.num_tokens())),
        capacity_(static_cast<size_t>(std::max(context.num_tokens(), context.max_tokens))),
        num_experts_(static_cast<size_t>(args.routing.num_experts)),
        num_chosen_(static_cast<size_t>(args.routing.num_experts_per_token)),
        d_model_(args.x->cols()) {
    CheckShapes();
  }

  void Run() {
    NormRows();
    RunRouter();
    Choose();
    SortByExpert();
    MakeInputs();
    MakeHidden();
    Mix();
  }

 private:
  void CheckShapes() const {
    SLUICE_CHECK(args_.router->out_features() == args_.routing.num_experts);
    SLUICE_CHECK(args_.gate_up->num_experts() == args_.routing.num_experts);
    SLUICE_CHECK(args_.down->num_experts() == args_.routing.num_experts);
    SLUICE_CHECK(args_.router->in_features() == d_model_ && args_.gate_up->in_features() == d_model_);
    SLUICE_CHECK(args_.gate_up->out_features() == 2 * args_.down->in_features());
    SLUICE_CHECK(args_.down->out_features() == d_model_);
    if (args_.shared_gate_up == nullptr) return;
    SLUICE_CHECK(args_.shared_gate_up->in_features() == d_model_);
    SLUICE_CHECK(args_.shared_gate_up->out_features() == 2 * args_.shared_down->in_features());
    SLUICE_CHECK(args_.shared_down->out_features() == d_model_);
  }

  template <class T>
  T* WorkerScratch(size_t count_per_worker) const {
    return context_.worker_scratch.Reserve<T>(count_per_worker * static_cast<size_t>(context_.num_threads()));
  }

  // h, for the router and for every expert.
  void NormRows() {
    const CpuActivations& x = RowsOf(args_.x);
    h_ = x.row(0);
    if (!args_.norm) return;
    float* normed = scratch_.normed.Reserve<float>(capacity_ * static_cast<size_t>(x.stride()));
    ForRows(context_, context_.num_tokens(),
            [&](int row, int) { context_.Norm(*args_.norm, x.row(row), d_model_, normed + row * x.stride()); });
    h_ = normed;
  }
  const float* h(int64_t row) const { return h_ + row * RowsOf(args_.x).stride(); }

  void RunRouter() {
    const PackedLinear& router = PackedOf(args_.router);
    const float* bias = DataOf(args_.router_bias);
    float* logits = scratch_.logits.Reserve<float>(capacity_ * num_experts_);
    const Operand operand(context_, {h_, RowsOf(args_.x).stride(), nullptr, nullptr}, context_.num_tokens(), router);
    RunLinear(context_, router, operand, context_.num_tokens(), {},
              [&](const PanelView& panel, int row, const float* tile) {
                float* out = logits + static_cast<size_t>(row) * num_experts_ + panel.first_row;
                std::memcpy(out, tile, static_cast<size_t>(panel.num_rows) * sizeof(float));
                if (bias != nullptr) context_.floats.add(bias + panel.first_row, panel.num_rows, out);
              });
  }

  void Choose() {
    const size_t scratch_values = RoutingScratch(args_.routing);
    double* worker_scratch = WorkerScratch<double>(scratch_values);
    auto* choices = scratch_.choices.Reserve<ExpertChoice>(capacity_ * num_chosen_);
    const float* logits = scratch_.logits.data<float>();
    ForRows(context_, context_.num_tokens(), [&](int r, int worker) {
      const size_t row = static_cast<size_t>(r);
      ChooseExperts(args_.routing, {logits + row * num_experts_, num_experts_}, DataOf(args_.selection_bias),
                    {worker_scratch + static_cast<size_t>(worker) * scratch_values, scratch_values},
                    {choices + row * num_chosen_, num_chosen_});
    });
    choices_ = {choices, num_rows_ * num_chosen_};
  }

  void SortByExpert() {
    int32_t* next = scratch_.next_places.Reserve<int32_t>(num_experts_);
    std::fill_n(next, num_experts_, 0);
    for (const ExpertChoice& choice : choices_) ++next[choice.expert];
    ReservePlaces();
    int32_t place = 0;
    for (size_t e = 0; e < num_experts_; ++e) {
      const int32_t count = next[e];
      next[e] = place;
      if (count > 0) AddVisit(static_cast<int32_t>(e), place, count);
      place += count;
    }
    for (size_t i = 0; i < choices_.size(); ++i) {
      const float weight = choices_[i].weight;
      places_[next[choices_[i].expert]++] = {static_cast<int32_t>(i / num_chosen_), args_.weight_on_input ? weight : 1,
                                             args_.weight_on_input ? 1 : weight};
    }
    if (args_.shared_gate_up == nullptr) return;
    AddSharedVisit(place);
    for (int32_t row = 0; row < context_.num_tokens(); ++row) places_[place + row] = {row, 1, 1};
  }

  void ReservePlaces() {
    places_ = scratch_.places.Reserve<Place>(capacity_ * (num_chosen_ + 1));
    visits_ = {scratch_.visits.Reserve<Visit>(num_experts_ + 1), 0};
    const size_t num_places = capacity_ * num_chosen_;
    const bool has_shared = args_.shared_gate_up != nullptr;
    const PackedLinear& up = ExpertsOf(args_.gate_up).packed(0);
    const PackedLinear& down = ExpertsOf(args_.down).packed(0);
    const auto layout = [&](HiddenRows& rows, const PackedLinear& weights) {
      rows.type = Operand::TypeFor(context_, weights);
      rows.stride_bytes = RowStride(rows.type, weights.k());
    };
    layout(routed_.in, up);
    layout(routed_.hidden, down);
    if (has_shared) {
      layout(shared_.in, PackedOf(args_.shared_gate_up));
      layout(shared_.hidden, PackedOf(args_.shared_down));
    }
    const auto reserve = [&](AlignedBuffer& buffer, HiddenRows PlaceRows::*rows) {
      const size_t routed_bytes = num_places * (routed_.*rows).stride_bytes;
      const size_t shared_bytes = has_shared ? capacity_ * (shared_.*rows).stride_bytes : 0;
      (routed_.*rows).data = buffer.Reserve<uint8_t>(routed_bytes + shared_bytes);
      (shared_.*rows).data = (routed_.*rows).data + routed_bytes;
    };
    reserve(scratch_.inputs, &PlaceRows::in);
    reserve(context_.hidden_rows, &PlaceRows::hidden);
  }

  void AddVisit(int32_t expert, int32_t first_place, int32_t count) {
    const PackedLinear& up = ExpertsOf(args_.gate_up).packed(expert);
    const PackedLinear& down = ExpertsOf(args_.down).packed(expert);
    const float* up_bias = DataOf(args_.gate_up_bias);
    const float* down_bias = DataOf(args_.down_bias);
    if (up_bias != nullptr) up_bias += expert * up.num_rows();
    if (down_bias != nullptr) down_bias += expert * down.num_rows();
    Append({HiddenLayer{&up, up_bias, down.k(), true, args_.activation, args_.alpha, args_.limit}, &down, down_bias,
            first_place, count, routed_.in.From(first_place), routed_.hidden.From(first_place), 0});
  }

  void AddSharedVisit(int32_t first_place) {
    const PackedLinear& up = PackedOf(args_.shared_gate_up);
    const PackedLinear& down = PackedOf(args_.shared_down);
    Append({HiddenLayer{&up, nullptr, down.k(), true, args_.activation, args_.alpha, args_.limit}, &down, nullptr,
            first_place, context_.num_tokens(), shared_.in, shared_.hidden, 0});
  }

  void Append(const Visit& visit) {
    const int64_t first_chunk = visits_.empty() ? 0 : visits_.back().first_chunk + visits_.back().num_chunks();
    visits_ = {visits_.data(), visits_.size() + 1};
    visits_.back() = visit;
    visits_.back().first_chunk = first_chunk;
  }

  // Gathers the rows of each visit, in the form that its kernels take.
  void MakeInputs() {
    const size_t stride = static_cast<size_t>(CpuActivations::Stride(d_model_));
    float* scaled = WorkerScratch<float>(stride);
    const int num_routed = static_cast<int>(choices_.size());
    const int num_shared = args_.shared_gate_up != nullptr ? context_.num_tokens() : 0;
    ForRows(context_, num_routed + num_shared, [&](int place, int worker) {
      const HiddenRows out = place < num_routed ? routed_.in.From(place) : shared_.in.From(place - num_routed);
      MakeInput(places_[place], out, scaled + stride * static_cast<size_t>(worker));
    });
  }

  void MakeInput(const Place& place, const HiddenRows& out, float* scaled) const {
    const float* in = h(place.row);
    if (place.input_weight != 1) {
      for (int64_t i = 0; i < d_model_; ++i) scaled[i] = in[i] * place.input_weight;
      in = scaled;
    }
    if (out.type == ActivationType::kF32) {
      std::memcpy(out.data, in, static_cast<size_t>(d_model_) * sizeof(float));
    } else {
      context_.linear.quantize[static_cast<int>(out.type)](in, d_model_, out.data);
    }
  }

  // Chunks are a visit's blocks of hidden values, ascending, each with its blocks of rows in a row.
  void MakeHidden() {
    float* scratch = WorkerScratch<float>(kHiddenScratch);
    const int64_t num_chunks = visits_.back().first_chunk + visits_.back().num_chunks();
    context_.pool.ParallelFor(static_cast<uint32_t>(num_chunks), [&](uint32_t chunk, int worker) {
      const auto after = std::upper_bound(visits_.begin(), visits_.end(), int64_t{chunk},
                                          [](int64_t c, const Visit& visit) { return c < visit.first_chunk; });
      const Visit& visit = *(after - 1);
      const int64_t in_visit = chunk - visit.first_chunk;
      const int first = static_cast<int>(in_visit % visit.num_row_blocks()) * kRowBlock;
      MakeHiddenBlock(context_, visit.up, in_visit / visit.num_row_blocks(), visit.in.From(first),
                      std::min(visit.num_rows - first, kRowBlock), visit.hidden.From(first),
                      scratch + kHiddenScratch * static_cast<size_t>(worker));
    });
  }

  // A chunk is a few panels of the output. It goes through the visits in order, so that each row's sum has the order of
  // the contract without a second pass.
  void Mix() {
    const int64_t num_panels = visits_[0].down->num_panels();
    const int64_t panels_per_chunk = std::clamp<int64_t>(num_panels / (4 * context_.num_threads()), 1, kMaxMixPanels);
    float* sums = WorkerScratch<float>(capacity_ * kMixWidth);
    if (args_.post_norm) wide_ = context_.wide_rows.Reserve<float>(capacity_ * static_cast<size_t>(stride()));
    const int64_t num_chunks = (num_panels + panels_per_chunk - 1) / panels_per_chunk;
    context_.pool.ParallelFor(static_cast<uint32_t>(num_chunks), [&](uint32_t chunk, int worker) {
      const int64_t first = chunk * panels_per_chunk;
      MixPanels(first, std::min(first + panels_per_chunk, num_panels),
                sums + capacity_ * kMixWidth * static_cast<size_t>(worker));
    });
    if (!args_.post_norm) return;
    ForRows(context_, context_.num_tokens(), [&](int row, int) {
      float* y = wide_ + row * stride();
      context_.Norm(*args_.post_norm, y, d_model_, y);
      context_.floats.add(y, d_model_, RowsOf(args_.x).row(row));
    });
  }

  void MixPanels(int64_t first_panel, int64_t end_panel, float* sums) const {
    std::fill_n(sums, num_rows_ * kMixWidth, 0.0f);
    for (const Visit& visit : visits_) {
      for (int64_t p = first_panel; p < end_panel; ++p) {
        const PanelView panel = visit.down->panel(p);
        const float* bias = visit.down_bias != nullptr ? visit.down_bias + panel.first_row : nullptr;
        float* columns = sums + (p - first_panel) * kPanelRows;
        const Place* place = places_ + visit.first_place;
        RunPanel(context_.linear, panel, visit.down->k(), visit.hidden, visit.num_rows,
                 [&](int, int rows, const float* tile) {
                   for (int r = 0; r < rows; ++r, ++place, tile += kPanelRows) {
                     AddWeighted(tile, bias, place->output_weight, panel.num_rows,
                                 columns + static_cast<size_t>(place->row) * kMixWidth);
                   }
                 });
      }
    }
    const int64_t first = first_panel * kPanelRows;
    const int64_t count = std::min(end_panel * kPanelRows, d_model_) - first;
    for (size_t row = 0; row < num_rows_; ++row) {
      const float* sum = sums + row * kMixWidth;
      if (args_.post_norm) {
        std::memcpy(wide_ + static_cast<int64_t>(row) * stride() + first, sum,
                    static_cast<size_t>(count) * sizeof(float));
      } else {
        context_.floats.add(sum, count, RowsOf(args_.x).row(static_cast<int64_t>(row)) + first);
      }
    }
  }

  int64_t stride() const { return RowsOf(args_.x).stride(); }

  // The rows of a small expert stay in the first-level cache over this many panels.
  static constexpr int64_t kMaxMixPanels = 4;
  static constexpr size_t kMixWidth = kMaxMixPanels * kPanelRows;

  CpuContext& context_;
  const MoeArgs& args_;
  MoeScratch& scratch_;
  const size_t num_rows_, capacity_, num_experts_, num_chosen_;
  const int64_t d_model_;
  const float* h_ = nullptr;
  std::span<const ExpertChoice> choices_;  // [row][num_chosen]
  Place* places_ = nullptr;
  std::span<Visit> visits_;  // ascending by expert
  PlaceRows routed_, shared_;
  float* wide_ = nullptr;  // [row] the sum that the norm needs whole
};

}  // namespace

absl::StatusOr<std::unique_ptr<CpuExperts>> CpuExperts::Load(CpuContext& context,
                                                             std::span<const std::vector<TensorView>> experts,
                                                             LinearLayout layout) {
  SLUICE_RETURN_IF_ERROR(ValidateExperts(experts, layout));
  std::vector<PackedLinear> packed;
  for (const std::vector<TensorView>& parts : experts) {
    SLUICE_ASSIGN_OR_RETURN(PackedLinear linear, PackedLinear::Pack(parts, layout, &context.pool, &context.arena));
    packed.push_back(std::move(linear));
  }
  return std::make_unique<CpuExperts>(std::move(packed));
}

void CpuMoe(CpuContext& context, const MoeArgs& args, MoeScratch& scratch) {
  if (context.num_tokens() > 0) MixtureStep(context, args, scratch).Run();
}

}  // namespace sluice
