#include "engine/model/kv_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "tests/model/family_testing.h"
#include "tests/model/toy_model.h"

namespace sluice::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr AttentionMask kFull{};
constexpr AttentionMask Window(int32_t size) { return {MaskKind::kWindow, size}; }

// Layers with these masks, for a context of 4,096 tokens.
ModelSpec Spec(const std::vector<AttentionMask>& masks) {
  ModelSpec spec = ToySpec();
  spec.max_position = 4096;
  spec.layers.resize(masks.size(), spec.layers[0]);
  for (size_t i = 0; i < masks.size(); ++i) spec.layers[i].attention.mask = masks[i];
  return spec;
}

// `first` layers with one mask, then `second` with another.
ModelSpec Spec(int first, const AttentionMask& mask, int second, const AttentionMask& other) {
  std::vector<AttentionMask> masks(size_t(first), mask);
  masks.resize(size_t(first + second), other);
  return Spec(masks);
}

std::vector<int32_t> GroupsOf(const ModelSpec& spec) {
  std::vector<int32_t> groups;
  for (const LayerSpec& layer : spec.layers) groups.push_back(layer.kv_group);
  return groups;
}

// No two layers share a group and a storage, and every group has the masks of its layers.
void ExpectSound(const ModelSpec& spec, const KvGroups& groups) {
  std::set<std::pair<int32_t, int32_t>> places;
  ASSERT_EQ(groups.storage.size(), spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    ASSERT_LT(size_t(layer.kv_group), groups.masks.size());
    EXPECT_EQ(groups.masks[size_t(layer.kv_group)], layer.attention.mask);
    EXPECT_GE(groups.storage[i], 0);
    EXPECT_LT(groups.storage[i], groups.num_storages);
    EXPECT_TRUE(places.emplace(layer.kv_group, groups.storage[i]).second) << "layer " << i;
  }
}

KvGroups Assign(ModelSpec* spec) {
  AssignKvGroups(spec);
  const KvGroups groups = MakeKvGroups(*spec);
  ExpectSound(*spec, groups);
  return groups;
}

TEST(KvGroupsTest, LayersOfOneMaskAreOneGroupWithAStorageForEach) {
  for (const AttentionMask& mask : {kFull, Window(64)}) {
    ModelSpec spec = Spec({mask, mask, mask});
    const KvGroups groups = Assign(&spec);
    EXPECT_THAT(groups.masks, ElementsAre(mask));
    EXPECT_THAT(groups.storage, ElementsAre(0, 1, 2));
    EXPECT_EQ(groups.num_storages, 3);
  }
}

TEST(KvGroupsTest, AlternatingMasksAreTwoGroupsThatShareStorages) {
  ModelSpec spec = Spec({Window(64), kFull, Window(64), kFull});
  const KvGroups groups = Assign(&spec);
  EXPECT_THAT(groups.masks, ElementsAre(Window(64), kFull));
  EXPECT_THAT(GroupsOf(spec), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(groups.storage, ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(groups.num_storages, 2);
}

TEST(KvGroupsTest, TheMoreNumerousMaskFillsSeveralGroups) {
  ModelSpec spec = Spec({Window(64), Window(64), Window(64), kFull, Window(64), Window(64), kFull});
  const KvGroups groups = Assign(&spec);
  EXPECT_THAT(groups.masks, ElementsAre(Window(64), Window(64), Window(64), kFull));
  EXPECT_THAT(GroupsOf(spec), ElementsAre(0, 0, 1, 3, 1, 2, 3));
  EXPECT_THAT(groups.storage, ElementsAre(0, 1, 0, 0, 1, 0, 1));
  EXPECT_EQ(groups.num_storages, 2);
}

TEST(KvGroupsTest, GroupSizeMinimisesMemoryForTheWholeContext) {
  // 12 full layers as a group of their own, not two groups of 11.
  ModelSpec spec = Spec(12, kFull, 11, Window(64));
  EXPECT_EQ(Assign(&spec).num_storages, 12);
  // One group of full layers and ten of window layers: places left over behind a window are cheap.
  spec = Spec(2, kFull, 19, Window(64));
  KvGroups groups = Assign(&spec);
  EXPECT_EQ(groups.num_storages, 2);
  EXPECT_EQ(groups.masks.size(), 11u);
  // Full layers that are the more numerous fill groups of the other's size where nothing is left over.
  spec = Spec(12, kFull, 4, Window(64));
  EXPECT_EQ(Assign(&spec).num_storages, 4);
  // A window as long as the context is as dear as none.
  spec = Spec(4, kFull, 5, Window(1 << 20));
  EXPECT_EQ(Assign(&spec).num_storages, 5);
  // Of equal costs the larger, with fewer tables.
  spec = Spec(4, Window(64), 8, Window(65));
  spec.max_position = 64;
  EXPECT_EQ(Assign(&spec).num_storages, 4) << "12 layers' worth against 16";
  spec = Spec(4, Window(64), 4, Window(65));
  EXPECT_EQ(Assign(&spec).masks.size(), 2u);
}

TEST(KvGroupsTest, LayersOfDifferentShapesAreOneGroupThatGivesNothingBack) {
  ModelSpec spec = Spec({kFull, Window(64)});
  std::get<Gqa>(spec.layers[1].attention.kind).num_kv_heads = 1;
  AssignKvGroups(&spec);
  EXPECT_THAT(GroupsOf(spec), Each(0));
  const KvGroups groups = MakeKvGroups(spec);
  EXPECT_THAT(groups.masks, ElementsAre(kFull));
  EXPECT_THAT(groups.storage, ElementsAre(0, 1));
  // Even in groups of their own they share no storage.
  spec.layers[1].kv_group = 1;
  EXPECT_THAT(MakeKvGroups(spec).storage, ElementsAre(0, 1));
  EXPECT_EQ(MakeKvGroups(spec).num_storages, 2);
}

TEST(KvGroupsTest, ALatentLayerBesideOneWithHeadsIsAnotherShape) {
  ModelSpec spec = Spec({kFull, Window(64)});
  spec.layers[1].attention.kind = Mla{.num_heads = 4,
                                      .q_lora_rank = {},
                                      .kv_lora_rank = 48,
                                      .qk_nope_head_dim = 24,
                                      .qk_rope_head_dim = 16,
                                      .v_head_dim = 20};  // 64 values a token, like the other
  AssignKvGroups(&spec);
  EXPECT_THAT(GroupsOf(spec), Each(0));
  spec.layers[0].attention.kind = spec.layers[1].attention.kind;
  EXPECT_EQ(Assign(&spec).num_storages, 1);
}

TEST(KvGroupsTest, ModelsOfRealSize) {
  struct Expected {
    const char* config;
    size_t num_groups;
    int32_t num_storages;
  };
  for (const Expected& e : {Expected{"llama-3.1-8b", 1, 32},
                            {"mistral-7b-v0.1", 1, 32},
                            {"deepseek-v3", 1, 61},
                            {"gemma2-27b", 2, 23},
                            {"gpt-oss-20b", 2, 12},
                            {"gpt-oss-120b", 2, 18},
                            // 36 layers of chunks: three groups.
                            {"llama4-scout", 4, 12},
                            {"llama4-maverick", 4, 12},
                            // 22 of 26 layers, 29 of 34 and 52 of 62 have windows: six groups each.
                            {"gemma3-1b", 7, 4},
                            {"gemma3-4b", 7, 5},
                            {"gemma3-27b", 7, 10}}) {
    const ModelSpec spec = ReadConfig(e.config);
    const KvGroups groups = MakeKvGroups(spec);
    ExpectSound(spec, groups);
    EXPECT_EQ(groups.masks.size(), e.num_groups) << e.config;
    EXPECT_EQ(groups.num_storages, e.num_storages) << e.config;
  }
}

}  // namespace
}  // namespace sluice::testing
