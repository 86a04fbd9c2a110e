// Patterns of tensor names.
#include "engine/model/tensor_naming.h"

#include <gtest/gtest.h>

#include <set>

#include "engine/model/registry.h"
#include "tests/model/find_tensor_name.h"

namespace sluice {
namespace {

TEST(TensorNamingTest, PlacesAreFilledIn) {
  EXPECT_EQ(ExpandTensorName("{model}layers.{layer}.w{expert}", "model.", 12, 3), "model.layers.12.w3");
  EXPECT_EQ(ExpandTensorName("{model}layers.{layer}.w{expert}", "", 0), "layers.0.w{expert}");
  EXPECT_EQ(ExpandTensorName("norm.weight", "model.", -1), "norm.weight");
}

TEST(TensorNamingTest, TheFirstNameAndPrefixAreForMessages) {
  constexpr TensorName kNames[] = {{TensorRole::kQ, "{model}a.{layer}"}, {TensorRole::kQ, "{model}b.{layer}"}};
  constexpr absl::string_view kPrefixes[] = {"x.", "y."};
  EXPECT_EQ(FindTensorName({.names = kNames, .prefixes = kPrefixes}, TensorRole::kQ, 4), "x.a.4");
  EXPECT_EQ(FindTensorName({.names = kNames}, TensorRole::kQ, 4), "a.4");
  EXPECT_EQ(FindTensorName({.names = kNames}, TensorRole::kK, 4), std::nullopt);
}

TEST(TensorNamingTest, WhatMayBeLeftOut) {
  constexpr absl::string_view kIgnored[] = {"vision.*", "*.inv_freq", "model.layers.{beyond}.*", "h.*.mask.*.bias",
                                            "e"};
  const TensorNaming naming{.ignored = kIgnored};
  for (const char* name : {"vision.a.b", "vision.", "model.layers.0.rotary.inv_freq", "model.layers.61.eh_proj.weight",
                           "model.layers.4000000.x", "h.0.mask.1.bias", "h.mask..mask.x.bias", "e"}) {
    EXPECT_TRUE(IsIgnoredTensor(naming, name, 61)) << name;
  }
  for (const char* name :
       {"", "vision", "a.vision.b", "inv_freq", "x.inv_freq.y", "model.layers.60.eh_proj.weight", "model.layers.x.y",
        "model.layers..y", "model.layers.61", "model.layers.99999999999999.x", "h.0.mask.bias", "ee"}) {
    EXPECT_FALSE(IsIgnoredTensor(naming, name, 61)) << name;
  }
}

// Names come from files: one that almost fits everywhere must not take time beyond measure.
TEST(TensorNamingTest, LongNamesAreJudgedQuickly) {
  constexpr absl::string_view kIgnored[] = {"*h.*.attn.*.bias"};
  std::string name;
  for (int i = 0; i < 200000; ++i) name += "h..attn.";
  EXPECT_FALSE(IsIgnoredTensor({.ignored = kIgnored}, name, 1));
  EXPECT_TRUE(IsIgnoredTensor({.ignored = kIgnored}, name + "x.bias", 1));
}

// Roles that share a tensor do so by its rows, in one form, and come one after the other.
TEST(TensorNamingTest, TablesOfAllArchitecturesAreInOrder) {
  for (const Architecture& row : Architectures()) {
    for (const TensorNaming& naming : {row.gguf_tensors, row.config_tensors}) {
      for (size_t i = 0; i < naming.names.size(); ++i) {
        const TensorName& name = naming.names[i];
        for (size_t j = i + 1; j < naming.names.size(); ++j) {
          const TensorName& other = naming.names[j];
          if (other.pattern != name.pattern) continue;
          EXPECT_NE(other.role, name.role) << name.pattern;
          EXPECT_EQ(other.form.rows, name.form.rows) << name.pattern;
          EXPECT_NE(name.form.rows, TensorRows::kOwn) << name.pattern;
          EXPECT_EQ(other.form.transposed, name.form.transposed) << name.pattern;
          EXPECT_EQ(other.form.encoding, name.form.encoding) << name.pattern;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice
