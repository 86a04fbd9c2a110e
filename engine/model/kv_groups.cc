#include "engine/model/kv_groups.h"

#include <algorithm>
#include <limits>
#include <variant>

namespace sluice {
namespace {

// The layers with one mask.
struct MaskLayers {
  AttentionMask mask;
  std::vector<LayerSpec*> layers;
};

std::vector<MaskLayers> ByMask(ModelSpec* spec) {
  std::vector<MaskLayers> masks;
  for (LayerSpec& layer : spec->layers) {
    const AttentionMask& mask = layer.attention.mask;
    auto it = std::find_if(masks.begin(), masks.end(), [&](const MaskLayers& m) { return m.mask == mask; });
    if (it == masks.end()) it = masks.insert(it, {mask, {}});
    it->layers.push_back(&layer);
  }
  return masks;
}

bool SameKvShape(const LayerSpec& a, const LayerSpec& b) {
  const Gqa *gqa = std::get_if<Gqa>(&a.attention.kind), *other_gqa = std::get_if<Gqa>(&b.attention.kind);
  if (gqa != nullptr && other_gqa != nullptr) {
    return gqa->num_kv_heads == other_gqa->num_kv_heads && gqa->head_dim == other_gqa->head_dim &&
           gqa->value_head_dim == other_gqa->value_head_dim;
  }
  const Mla *mla = std::get_if<Mla>(&a.attention.kind), *other_mla = std::get_if<Mla>(&b.attention.kind);
  return mla != nullptr && other_mla != nullptr && mla->kv_lora_rank == other_mla->kv_lora_rank &&
         mla->qk_rope_head_dim == other_mla->qk_rope_head_dim;
}

bool OneKvShape(const ModelSpec& spec) {
  return std::all_of(spec.layers.begin(), spec.layers.end(),
                     [&](const LayerSpec& layer) { return SameKvShape(layer, spec.layers[0]); });
}

int64_t NumGroups(const MaskLayers& m, int64_t size) { return (int64_t(m.layers.size()) + size - 1) / size; }

int64_t GroupSize(const std::vector<MaskLayers>& masks, int32_t max_position) {
  int64_t best_size = 0, best_cost = std::numeric_limits<int64_t>::max();
  for (const MaskLayers& candidate : masks) {
    const int64_t size = int64_t(candidate.layers.size());
    int64_t cost = 0;  // tokens times layers
    for (const MaskLayers& m : masks) {
      const int32_t reach = m.mask.kind == MaskKind::kFull ? max_position : std::min(m.mask.size, max_position);
      cost += NumGroups(m, size) * size * reach;
    }
    if (cost < best_cost || (cost == best_cost && size > best_size)) best_size = size, best_cost = cost;
  }
  return best_size;
}

}  // namespace

void AssignKvGroups(ModelSpec* spec) {
  for (LayerSpec& layer : spec->layers) layer.kv_group = 0;
  const std::vector<MaskLayers> masks = ByMask(spec);
  if (masks.size() == 1 || !OneKvShape(*spec)) return;
  const int64_t size = GroupSize(masks, spec->max_position);
  int64_t first_group = 0;
  for (const MaskLayers& m : masks) {
    for (size_t i = 0; i < m.layers.size(); ++i) m.layers[i]->kv_group = int32_t(first_group + int64_t(i) / size);
    first_group += NumGroups(m, size);
  }
}

KvGroups MakeKvGroups(const ModelSpec& spec) {
  const bool shared = OneKvShape(spec);
  KvGroups groups;
  std::vector<int32_t> num_layers;  // by group, so far
  for (const LayerSpec& layer : spec.layers) {
    const size_t group = size_t(layer.kv_group);
    if (group >= groups.masks.size()) {
      groups.masks.resize(group + 1);
      num_layers.resize(group + 1);
    }
    if (num_layers[group] == 0) groups.masks[group] = layer.attention.mask;
    if (groups.masks[group] != layer.attention.mask) groups.masks[group] = AttentionMask{};
    const int32_t place = num_layers[group]++;
    groups.storage.push_back(shared ? place : int32_t(groups.storage.size()));
    groups.num_storages = std::max(groups.num_storages, groups.storage.back() + 1);
  }
  return groups;
}

}  // namespace sluice
