#include "engine/ops/cuda/gemm_route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace sluice {

void PrintTo(const RowRun& run, std::ostream* os) {
  *os << run.count << " from " << run.first << (run.by_library ? " by the library" : "");
}

namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class NoLibrary : public GemmLibrary {
 public:
  std::string Description() const override { return ""; }
  absl::Status Prepare(int32_t, int32_t) override { return absl::OkStatus(); }
  int64_t num_prepared() const override { return 0; }
  absl::Status Multiply(const LibraryProduct&, cuda::Stream) override { return absl::OkStatus(); }
};

struct Part {
  int32_t first_position, num_rows, prompt_len;
};

// A step of such sequences, where prompts of 100 tokens and more go through the library.
void Begin(GemmRoute* route, const std::vector<Part>& parts) {
  std::vector<int32_t> positions, row_starts = {0}, context_lens;
  std::vector<RowRoute> row_routes;
  for (const Part& part : parts) {
    const RequestNumerics numerics({.mla_expand_from = 1, .gemm_library_from = 100, .rope = {}}, part.prompt_len, 0);
    for (int32_t i = 0; i < part.num_rows; ++i) {
      positions.push_back(part.first_position + i);
      row_routes.push_back(numerics.route(positions.back()));
    }
    row_starts.push_back(static_cast<int32_t>(positions.size()));
    context_lens.push_back(part.first_position + part.num_rows);
  }
  BatchView batch;
  batch.token_ids = batch.positions = positions;
  batch.row_starts = row_starts;
  batch.context_lens = context_lens;
  batch.row_routes = row_routes;
  route->BeginStep(batch);
}

TEST(GemmRoute, PromptRowsOfLongPromptsGoThroughTheLibrary) {
  GemmRoute route(std::make_unique<NoLibrary>());
  Begin(&route, {{0, 100, 100}});
  EXPECT_TRUE(route.uses_library());
  EXPECT_THAT(route.runs(), ElementsAre(RowRun{0, 100, true}));
  Begin(&route, {{0, 99, 99}});
  EXPECT_FALSE(route.uses_library());
  EXPECT_THAT(route.runs(), ElementsAre(RowRun{0, 99, false}));
  // Any piece of the prompt, and none of what was generated.
  Begin(&route, {{37, 1, 100}});
  EXPECT_THAT(route.runs(), ElementsAre(RowRun{0, 1, true}));
  Begin(&route, {{99, 1, 100}});
  EXPECT_THAT(route.runs(), ElementsAre(RowRun{0, 1, true}));
  Begin(&route, {{100, 1, 100}});
  EXPECT_THAT(route.runs(), ElementsAre(RowRun{0, 1, false}));
  // As after a preemption.
  Begin(&route, {{90, 25, 100}});
  EXPECT_THAT(route.runs(), ElementsAre(RowRun{0, 10, true}, RowRun{10, 15, false}));
}

TEST(GemmRoute, NeighboursThatGoTheSameWayGoTogether) {
  GemmRoute route(std::make_unique<NoLibrary>());
  Begin(&route, {{7, 1, 5}, {0, 30, 30}, {20, 40, 200}, {0, 0, 100}, {0, 60, 100}, {500, 1, 400}, {8, 1, 8}});
  EXPECT_TRUE(route.uses_library());
  EXPECT_THAT(route.runs(), ElementsAre(RowRun{0, 31, false}, RowRun{31, 100, true}, RowRun{131, 2, false}));
  Begin(&route, {{7, 1, 5}, {500, 1, 400}});
  EXPECT_FALSE(route.uses_library());
  EXPECT_THAT(route.runs(), ElementsAre(RowRun{0, 2, false}));
  Begin(&route, {});
  EXPECT_FALSE(route.uses_library());
  EXPECT_THAT(route.runs(), IsEmpty());
}

TEST(GemmRoute, PaddingGoesAsItIsTold) {
  GemmRoute route(std::make_unique<NoLibrary>());
  route.BeginPadding(64, true);
  EXPECT_TRUE(route.uses_library());
  EXPECT_THAT(route.runs(), ElementsAre(RowRun{0, 64, true}));
  route.BeginPadding(8, false);
  EXPECT_FALSE(route.uses_library());
  GemmRoute ours;
  ours.BeginPadding(64, true);
  EXPECT_FALSE(ours.uses_library());
  // Nobody need say prompts' lengths then.
  BatchView batch;
  const std::vector<int32_t> row_starts = {0, 3}, context_lens = {3}, positions = {0, 1, 2};
  batch.row_starts = row_starts, batch.context_lens = context_lens, batch.positions = positions;
  ours.BeginStep(batch);
  EXPECT_FALSE(ours.uses_library());
}

}  // namespace
}  // namespace sluice
