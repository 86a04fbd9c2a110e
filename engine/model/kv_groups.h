// Which layers share a block table, and where a layer's keys and values lie.
//
// One pool of equal blocks serves all layers. A KV group is some layers with one block table per sequence, so a block
// holds block_size tokens of the layers of one group. Layers that see different keys are in different groups: blocks of
// a window layer go back to the pool while those of a full layer stay. So that any block can serve any group, all
// groups have the same number of places, and the j-th layers of all groups share storage j: a block belongs to one
// group at a time, hence so does its part of every storage. With N layers in groups of S a block takes the memory of S
// layers, not of N.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/spec.h"

namespace sluice {

// Sets LayerSpec::kv_group of all layers.
//
// One group if all masks are equal, or if layers store values of different shapes. Otherwise the layers of each mask,
// in order, fill groups of S places; the last group of a mask may have places left. S is the number of layers of one of
// the masks, the one with which a sequence of max_position tokens needs the least memory, the larger of equal ones:
//   sum over masks of ceil(layers / S) * S * (tokens that stay reachable).
// So full layers waste no place where they are the fewer (Gemma 3: 4 full, 22 window layers are 1 + 6 groups of 4), and
// 13 full beside 12 window layers are two groups of 13, not three of 12. REQUIRES: ValidateModelSpec(*spec) is OK.
void AssignKvGroups(ModelSpec* spec);

struct KvGroups {
  // [num_groups] What the layers of a group see. A group of layers with different masks is kFull, the widest.
  std::vector<AttentionMask> masks;
  // [num_layers] in [0, num_storages)
  std::vector<int32_t> storage;
  int32_t num_storages = 0;  // places of a group; one per layer if the layers' shapes differ
};

// By LayerSpec::kv_group, however it was assigned.
KvGroups MakeKvGroups(const ModelSpec& spec);

}  // namespace sluice
