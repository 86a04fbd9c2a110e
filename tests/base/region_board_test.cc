// The thread pool's lock-free part, through every order of events of small cases.
#include "engine/base/region_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/base/lossy_board.h"
#include "tests/base/region_board_program.h"
#include "tests/base/region_board_mutants.h"

namespace sluice {
namespace {

using interleavings::Explore;
using interleavings::Options;
using interleavings::Result;

template <class Board>
Result ExploreBoard(int num_workers, std::vector<uint32_t> regions, Options options = {}, uint64_t first_number = 0) {
  Result result = Explore(
      [&] { return std::make_unique<RegionBoardProgram<Board>>(num_workers, regions, first_number); }, options);
  std::printf("%d workers, chunks", num_workers);
  for (uint32_t chunks : regions) std::printf(" %u", chunks);
  std::printf(", %s: %lld states, %lld executions\n", options.weak ? "weak memory" : "interleavings",
              static_cast<long long>(result.num_states), static_cast<long long>(result.num_executions));
  return result;
}

using Board = RegionBoard<RegionWork, interleavings::Atomics>;

constexpr Options kInterleavings{.weak = false};
constexpr uint64_t kBeforeWrap = (uint64_t{1} << 36) - 2;  // the second region's number is 0 again

TEST(RegionBoardTest, TwoWorkersRunEachChunkOnceInTwoRegions) {
  EXPECT_EQ(ExploreBoard<Board>(2, {6, 6}, kInterleavings).failure, "");
  EXPECT_EQ(ExploreBoard<Board>(2, {3, 2}).failure, "");
}

TEST(RegionBoardTest, ThievesDrawSeveralChunksAtATime) {
  EXPECT_EQ(ExploreBoard<Board>(2, {8, 8}, kInterleavings).failure, "");
  EXPECT_EQ(ExploreBoard<Board>(2, {8}).failure, "");
}

TEST(RegionBoardTest, ThreeWorkersRunEachChunkOnce) {
  EXPECT_EQ(ExploreBoard<Board>(3, {3}, kInterleavings).failure, "");
}

TEST(RegionBoardTest, RegionsSmallerThanThePoolLeaveOldTickets) {
  EXPECT_EQ(ExploreBoard<Board>(2, {2, 1, 2}, kInterleavings).failure, "");
}

TEST(RegionBoardTest, RegionNumbersWrap) {
  EXPECT_EQ(ExploreBoard<Board>(2, {2, 2}, {}, kBeforeWrap).failure, "");
}

// Some minutes: --gtest_also_run_disabled_tests. Last result in README.md.
TEST(RegionBoardTest, DISABLED_LongCases) {
  EXPECT_EQ(ExploreBoard<Board>(2, {6, 6}).failure, "");
  EXPECT_EQ(ExploreBoard<Board>(2, {2, 2, 2}).failure, "");
  EXPECT_EQ(ExploreBoard<Board>(3, {3}).failure, "");
  EXPECT_EQ(ExploreBoard<Board>(3, {3, 3}, kInterleavings).failure, "");
}

TEST(RegionBoardTest, FindsTheLossOfChunksThatAThiefOffers) {
  using Lossy = LossyBoard<RegionWork, interleavings::Atomics>;
  EXPECT_THAT(ExploreBoard<Lossy>(2, {4, 6}, kInterleavings).failure, testing::HasSubstr("threads wait for ever"));
}

// Cases that together find every seeded bug; the first failure ends them.
template <class Candidate>
std::string FirstFailure(Options options = {}) {
  std::string failure;
  const auto explore = [&](int num_workers, std::vector<uint32_t> regions, uint64_t first_number) {
    if (failure.empty()) failure = ExploreBoard<Candidate>(num_workers, std::move(regions), options, first_number).failure;
  };
  explore(2, {2, 2}, kBeforeWrap);
  options.weak = false;
  explore(3, {2}, 0);
  explore(2, {8}, 0);
  return failure;
}

TEST(RegionBoardTest, EverySeededBugIsFound) {
  EXPECT_EQ(FirstFailure<Board>(), "");
#define SLUICE_EXPECT_FOUND(name) EXPECT_NE((FirstFailure<RegionBoard_##name<RegionWork, interleavings::Atomics>>()), "") << #name;
  SLUICE_REGION_BOARD_MUTANTS(SLUICE_EXPECT_FOUND)
}

std::vector<std::string> LinesOfTheBoard() {
  std::ifstream file(SLUICE_SOURCE_DIR "/engine/base/region_board.h");
  std::vector<std::string> lines(1);  // from 1
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// But for the order of num_wakes_: see interleavings.h on what a sequentially consistent load may do.
TEST(RegionBoardTest, NoMemoryOrderIsStrongerThanNeeded) {
  const std::vector<std::string> lines = LinesOfTheBoard();
  const Result whole = ExploreBoard<Board>(2, {2, 2});
  ASSERT_EQ(whole.failure, "");
  int num_tried = 0;
  for (uint32_t line : whole.ordered_lines) {
    ASSERT_LT(line, lines.size());
    if (lines[line].find("num_wakes_.") != std::string::npos) continue;
    EXPECT_NE(FirstFailure<Board>({.relaxed_line = line}), "") << lines[line];
    ++num_tried;
  }
  EXPECT_GE(num_tried, 9);
}

}  // namespace
}  // namespace sluice
