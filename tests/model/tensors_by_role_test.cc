// Which tensor is which: all there, of the right shape, nothing left over.
#include "engine/model/tensors_by_role.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "engine/model/weights.h"
#include "engine/ops/reference/reference_ops.h"
#include "tests/model/find_tensor_name.h"
#include "tests/model/formed_model.h"
#include "tests/model/toy_model.h"

namespace sluice::testing {
namespace {

using enum TensorRole;
using ::testing::HasSubstr;

TEST(TensorsByRoleTest, NamesWhatIsWrong) {
  const ToyModel model = MakeToyModel(MoeSpec(), TensorType::kF32, 3);
  const FormedModel formed(model, {{kExpertGate, "{layer}.{expert}.gate"},
                                   {kExpertUp, "{layer}.gate_up", kStackedRows},
                                   {kQ, "{layer}.qkv", kStackedRows},
                                   {kK, "{layer}.qkv", kStackedRows},
                                   {kV, "{layer}.qkv", kStackedRows}});
  const auto error = [&](const std::function<void(std::vector<TensorView>*)>& damage) {
    std::vector<TensorView> tensors = formed.tensors;
    damage(&tensors);
    const absl::Status status = TensorsByRole::Match(model.spec, formed.naming(), tensors, "file", {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const auto find = [](std::vector<TensorView>* tensors, absl::string_view name) {
    return std::find_if(tensors->begin(), tensors->end(), [&](const TensorView& t) { return t.name == name; });
  };
  EXPECT_THAT(error([&](auto* t) { t->erase(find(t, "1.2.gate")); }),
              ::testing::AllOf(HasSubstr("file: tensor '1.2.gate' is missing"), HasSubstr("[48, 64]")));
  EXPECT_THAT(error([&](auto* t) {
                find(t, "1.2.gate")->shape = {64, 48};
              }),
              ::testing::AllOf(HasSubstr("'1.2.gate' has shape [64, 48], expected [48, 64]")));
  EXPECT_THAT(error([&](auto* t) {
                find(t, "1.gate_up")->shape = {2, 96, 64};
              }),
              HasSubstr("'1.gate_up' has shape [2, 96, 64], expected [4, 48, 64] or [192, 64]"));
  EXPECT_THAT(error([&](auto* t) {
                find(t, "0.qkv")->shape = {64, 128};
              }),
              HasSubstr("'0.qkv' has shape [64, 128], expected [128, 64]"));
  EXPECT_THAT(error([&](auto* t) { t->push_back(t->front()); }), HasSubstr("is there twice"));
  EXPECT_THAT(error([&](auto* t) {
                t->push_back(t->front());
                t->back().name = "1.4.gate";
              }),
              HasSubstr("'1.4.gate' of shape [48, 64]") /* one expert too many */);
  EXPECT_THAT(error([&](auto* t) { find(t, "0.qkv")->name = "0.q_k_v"; }),
              ::testing::AllOf(HasSubstr("'0.qkv' is missing"), HasSubstr("[64, 64]")));
}

TEST(TensorsByRoleTest, LeavesOutWhatTheNamingSays) {
  const ToyModel model = MakeToyModel(ToySpec(), TensorType::kF32, 3);
  std::vector<TensorView> tensors = model.tensors;
  tensors.push_back(tensors.front());
  tensors.back().name = "toy.3.extra";
  constexpr absl::string_view kIgnored[] = {"toy.{beyond}.*"};
  TensorNaming naming = ToyTensorNames();
  naming.ignored = kIgnored;
  EXPECT_TRUE(TensorsByRole::Match(model.spec, naming, tensors, "file", {}).ok());
  tensors.back().name = "toy.2.extra";
  EXPECT_FALSE(TensorsByRole::Match(model.spec, naming, tensors, "file", {}).ok());
}

TEST(TensorsByRoleTest, ThePrefixWithTheEmbeddingHoldsForAll) {
  const ToyModel model = MakeToyModel(ToySpec(), TensorType::kF32, 3);
  std::vector<std::string> patterns;
  for (const TensorName& name : ToyTensorNames().names) patterns.push_back(absl::StrCat("{model}", name.pattern));
  std::vector<TensorName> names;
  for (size_t i = 0; i < patterns.size(); ++i) names.push_back({ToyTensorNames().names[i].role, patterns[i]});
  constexpr absl::string_view kPrefixes[] = {"a.", "language_model.b.", ""};
  for (absl::string_view prefix : kPrefixes) {
    std::vector<TensorView> tensors = model.tensors;
    for (TensorView& tensor : tensors) tensor.name = absl::StrCat(prefix, tensor.name);
    const TensorNaming naming{.names = names, .prefixes = kPrefixes};
    EXPECT_TRUE(TensorsByRole::Match(model.spec, naming, tensors, "file", {}).ok());
    tensors[2].name = absl::StrCat("c.", tensors[2].name);
    EXPECT_FALSE(TensorsByRole::Match(model.spec, naming, tensors, "file", {}).ok());
  }
}

TEST(TensorsByRoleTest, TheFileDecidesWhetherTheHeadIsTheEmbedding) {
  const ToyModel model = MakeToyModel(ToySpec(), TensorType::kF32, 3);
  const auto is_head = [](const TensorView& t) { return t.name == *FindTensorName(ToyTensorNames(), kOutputHead, -1); };
  ModelSpec tied = model.spec;
  tied.tied_embeddings = true;
  const auto has_head = [](const ModelSpec& spec, const std::vector<TensorView>& tensors) {
    const std::unique_ptr<Ops> ops = NewReferenceOps();
    const absl::StatusOr<ModelWeights> weights = LoadWeights(spec, ToyTensorNames(), tensors, "file", ops.get());
    EXPECT_TRUE(weights.ok()) << weights.status();
    return weights.ok() && weights->head != nullptr;
  };
  std::vector<TensorView> tensors = model.tensors;
  EXPECT_TRUE(has_head(model.spec, tensors));
  EXPECT_TRUE(has_head(tied, tensors));
  std::find_if(tensors.begin(), tensors.end(), is_head)->data = tensors[0].data;
  ASSERT_EQ(tensors[0].name, *FindTensorName(ToyTensorNames(), kTokenEmbedding, -1));
  EXPECT_FALSE(has_head(tied, tensors));
  EXPECT_TRUE(has_head(model.spec, tensors));
  std::erase_if(tensors, is_head);
  EXPECT_FALSE(has_head(tied, tensors));
  EXPECT_FALSE(has_head(model.spec, tensors));
}

}  // namespace
}  // namespace sluice::testing
