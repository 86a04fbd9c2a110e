#include "engine/model/decoder.h"

#include <optional>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/status_macros.h"
#include "engine/model/kv_groups.h"

namespace sluice {
namespace {

std::optional<NormArgs> MakeNorm(const std::optional<NormParams>& params, const NormWeights& weights) {
  if (!params.has_value()) return std::nullopt;
  return NormArgs{*params, weights.weight.get(), weights.bias.get()};
}

KvLayerShape MakeKvLayer(const Gqa& gqa) { return {gqa.num_kv_heads, gqa.head_dim, gqa.value_head_dim}; }
KvLayerShape MakeKvLayer(const Mla& mla) { return {1, mla.kv_lora_rank + mla.qk_rope_head_dim, 0}; }

int64_t QueryWidth(const Gqa& gqa) { return int64_t{gqa.num_heads} * gqa.head_dim; }
int64_t QueryWidth(const Mla& mla) { return int64_t{mla.num_heads} * (mla.qk_nope_head_dim + mla.qk_rope_head_dim); }
int64_t ValueWidth(const Gqa& gqa) { return int64_t{gqa.num_heads} * gqa.value_head_dim; }
int64_t ValueWidth(const Mla& mla) { return int64_t{mla.num_heads} * mla.v_head_dim; }

}  // namespace

KvCacheShape MakeKvCacheShape(const ModelSpec& spec, int32_t num_blocks, int32_t block_size, KvDType dtype) {
  KvCacheShape shape;
  shape.num_blocks = num_blocks;
  shape.block_size = block_size;
  shape.dtype = dtype;
  const KvGroups groups = MakeKvGroups(spec);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto& kind = spec.layers[i].attention.kind;
    shape.layers.push_back(std::visit([](const auto& k) { return MakeKvLayer(k); }, kind));
    shape.layers.back().storage = groups.storage[i];
  }
  return shape;
}

Decoder::Decoder(ModelSpec spec, ModelWeights weights, Ops* ops, const DecoderOptions& options)
    : spec_(std::move(spec)), weights_(std::move(weights)), ops_(ops), options_(options) {}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Create(ModelSpec spec, ModelWeights weights, Ops* ops,
                                                         const DecoderOptions& options) {
  SLUICE_CHECK(options.limits.max_tokens > 0 && options.limits.max_logits > 0 && options.max_position > 0);
  std::unique_ptr<Decoder> decoder(new Decoder(std::move(spec), std::move(weights), ops, options));
  SLUICE_RETURN_IF_ERROR(decoder->Allocate());
  return decoder;
}

absl::Status Decoder::Allocate() {
  for (const RopeTable& table : spec_.rope_tables) {
    SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<RopeTableData> data, ops_->LoadRope(table, options_.max_position));
    rope_tables_.push_back(std::move(data));
  }
  SLUICE_ASSIGN_OR_RETURN(x_,
                          ops_->NewActivations(options_.limits.max_tokens, spec_.d_model, ActivationsUse::kResidual));
  for (const LayerSpec& layer : spec_.layers) {
    const auto& kind = layer.attention.kind;
    const int64_t query_width = std::visit([](const auto& k) { return QueryWidth(k); }, kind);
    const int64_t value_width = std::visit([](const auto& k) { return ValueWidth(k); }, kind);
    AttentionBuffers buffers;
    SLUICE_ASSIGN_OR_RETURN(buffers.q, Buffer(query_width, ActivationsUse::kQuery));
    SLUICE_ASSIGN_OR_RETURN(buffers.out, Buffer(value_width, ActivationsUse::kAttentionOut));
    attention_.push_back(buffers);
  }
  StepLimits limits = options_.limits;
  limits.vocab_size = spec_.vocab_size;
  limits.num_kv_groups = int32_t(MakeKvGroups(spec_).masks.size());
  const KvCacheShape kv = MakeKvCacheShape(spec_, /*num_blocks=*/1, options_.kv_block_size, options_.kv_dtype);
  return ops_->Reserve(limits, kv, [this](KvCache* cache) {
    Layers(cache);
    Logits();
  });
}

absl::StatusOr<Activations*> Decoder::Buffer(int64_t cols, ActivationsUse use) {
  for (const Owned& owned : owned_) {
    if (owned.cols == cols && owned.use == use) return owned.activations.get();
  }
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Activations> activations,
                          ops_->NewActivations(options_.limits.max_tokens, cols, use));
  owned_.push_back({cols, use, std::move(activations)});
  return owned_.back().activations.get();
}

void Decoder::Forward(const BatchView& batch, KvCache* kv) {
  SLUICE_CHECK(batch.token_ids.size() <= size_t(options_.limits.max_tokens));
  SLUICE_CHECK(batch.logits_rows.size() <= size_t(options_.limits.max_logits));
  ops_->BeginStep(batch);
  ops_->Forward([&] {
    Layers(kv);
    if (!batch.logits_rows.empty()) Logits();
  });
}

absl::Status Decoder::WarmUp(KvCache* kv) {
  return ops_->WarmUp([&] {
    Layers(kv);
    Logits();
  });
}

void Decoder::Layers(KvCache* kv) {
  ops_->Embed(*weights_.embedding, spec_.embedding_scale, x_.get());
  if (weights_.positions != nullptr) ops_->AddPositions(*weights_.positions, x_.get());
  for (int32_t layer = 0; layer < int32_t(spec_.layers.size()); ++layer) {
    Attention(layer, kv);
    std::visit([&](const auto& kind) { Ffn(layer, kind); }, spec_.layers[layer].ffn);
  }
}

void Decoder::MoreLogits(const BatchView& batch) {
  SLUICE_CHECK(batch.logits_rows.size() <= size_t(options_.limits.max_logits));
  ops_->BeginStep(batch);
  Logits();
}

RopeArgs Decoder::Rope(const RopeSpec& rope) const {
  return {rope_tables_[rope.table].get(), rope.layout, rope.num_rotary};
}

void Decoder::Attention(int32_t layer, KvCache* kv) {
  const LayerSpec& spec = spec_.layers[layer];
  const LayerWeights& weights = weights_.layers[layer];
  std::visit([&](const auto& kind) { Attend(layer, kind, kv); }, spec.attention.kind);
  ProjectArgs project;
  project.in = attention_[layer].out;
  project.weight = weights.attn_out.get();
  project.bias = weights.attn_out_bias.get();
  project.post_norm = MakeNorm(spec.post_attn, weights.post_attn);
  project.x = x_.get();
  ops_->Project(project);
}

void Decoder::Attend(int32_t layer, const Gqa& gqa, KvCache* kv) {
  const LayerSpec& spec = spec_.layers[layer];
  const AttentionSpec& attention = spec.attention;
  const LayerWeights& weights = weights_.layers[layer];

  QkvArgs qkv;
  qkv.x = x_.get();
  qkv.norm = MakeNorm(spec.pre_attn, weights.pre_attn);
  qkv.qkv = weights.qkv.get();
  qkv.bias = weights.qkv_bias.get();
  qkv.heads = gqa;
  qkv.q_norm = weights.q_norm.get();
  qkv.k_norm = weights.k_norm.get();
  if (attention.rope.has_value()) qkv.rope = Rope(*attention.rope);
  if (attention.query_temperature.has_value()) {
    qkv.query_temperature_floor = attention.query_temperature->floor;
    qkv.query_temperature_coef = attention.query_temperature->coef;
  }
  qkv.kv = kv;
  qkv.layer = layer;
  qkv.kv_group = spec.kv_group;
  qkv.q = attention_[layer].q;
  ops_->Qkv(qkv);

  AttentionArgs attend;
  attend.q = attention_[layer].q;
  attend.heads = qkv.heads;
  attend.kv = kv;
  attend.layer = layer;
  attend.kv_group = spec.kv_group;
  attend.scale = attention.scale;
  attend.softcap = attention.softcap;
  attend.mask = attention.mask;
  attend.sinks = weights.sinks.get();
  attend.out = attention_[layer].out;
  ops_->Attention(attend);
}

void Decoder::Attend(int32_t layer, const Mla& mla, KvCache* kv) {
  const LayerSpec& spec = spec_.layers[layer];
  const LayerWeights& weights = weights_.layers[layer];
  const NormParams latent_norm{.eps = mla.latent_norm_eps};

  MlaQkvArgs qkv;
  qkv.x = x_.get();
  qkv.norm = MakeNorm(spec.pre_attn, weights.pre_attn);
  qkv.down = weights.mla.down.get();
  qkv.bias = weights.mla.down_bias.get();
  qkv.heads = mla;
  qkv.q_latent_norm = {latent_norm, weights.mla.q_latent_norm.get()};
  qkv.q_up = weights.mla.q_up.get();
  qkv.kv_latent_norm = {latent_norm, weights.mla.kv_latent_norm.get()};
  qkv.rope = Rope(*spec.attention.rope);
  qkv.kv = kv;
  qkv.layer = layer;
  qkv.kv_group = spec.kv_group;
  qkv.q = attention_[layer].q;
  ops_->MlaQkv(qkv);

  MlaAttentionArgs attend;
  attend.q = attention_[layer].q;
  attend.heads = qkv.heads;
  attend.up = weights.mla.up.get();
  attend.kv = kv;
  attend.layer = layer;
  attend.kv_group = spec.kv_group;
  attend.scale = spec.attention.scale;
  attend.mask = spec.attention.mask;
  attend.out = attention_[layer].out;
  ops_->MlaAttention(attend);
}

void Decoder::Ffn(int32_t layer, const DenseFfn& ffn) {
  const LayerSpec& spec = spec_.layers[layer];
  const LayerWeights& weights = weights_.layers[layer];
  DenseFfnArgs args;
  args.norm = MakeNorm(spec.pre_ffn, weights.pre_ffn);
  args.gate_up = weights.gate_up.get();
  args.gate_up_bias = weights.gate_up_bias.get();
  args.gated = ffn.gated;
  args.activation = ffn.activation.kind;
  args.alpha = ffn.activation.alpha;
  args.limit = ffn.activation.limit;
  args.down = weights.down.get();
  args.down_bias = weights.down_bias.get();
  args.post_norm = MakeNorm(spec.post_ffn, weights.post_ffn);
  args.x = x_.get();
  ops_->Ffn(args);
}

void Decoder::Ffn(int32_t layer, const MoeFfn& moe) {
  const LayerSpec& spec = spec_.layers[layer];
  const MoeWeights& weights = weights_.layers[layer].moe;
  MoeArgs args;
  args.norm = MakeNorm(spec.pre_ffn, weights_.layers[layer].pre_ffn);
  args.routing = moe.routing;
  args.router = weights.router.get();
  args.router_bias = weights.router_bias.get();
  args.selection_bias = weights.selection_bias.get();
  args.weight_on_input = moe.weight_on_input;
  args.gate_up = weights.gate_up.get();
  args.gate_up_bias = weights.gate_up_bias.get();
  args.activation = moe.activation.kind;
  args.alpha = moe.activation.alpha;
  args.limit = moe.activation.limit;
  args.down = weights.down.get();
  args.down_bias = weights.down_bias.get();
  args.shared_gate_up = weights.shared_gate_up.get();
  args.shared_down = weights.shared_down.get();
  args.post_norm = MakeNorm(spec.post_ffn, weights_.layers[layer].post_ffn);
  args.x = x_.get();
  ops_->Moe(args);
}

void Decoder::Logits() {
  LogitsArgs args;
  args.x = x_.get();
  args.norm = *MakeNorm(spec_.final_norm, weights_.final_norm);
  args.head = weights_.head != nullptr ? weights_.head.get() : weights_.embedding.get();
  args.scale = spec_.logit_scale;
  args.softcap = spec_.final_softcap;
  ops_->Logits(args);
}

}  // namespace sluice
