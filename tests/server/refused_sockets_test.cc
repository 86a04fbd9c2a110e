#include "server/net/refused_sockets.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

namespace sluice {
namespace {

constexpr int64_t kHoldNs = std::chrono::nanoseconds(RefusedSockets::kHoldTime).count();

// A pipe's reading end; its writing end is what a RefusedSockets holds.
class Held {
 public:
  UniqueFd Open() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    read_.reset(ends[0]);
    return UniqueFd(ends[1]);
  }
  bool closed() const {
    char byte;
    return read(read_.get(), &byte, 1) == 0;
  }

 private:
  UniqueFd read_;
};

TEST(RefusedSocketsTest, ClosesAfterItsTimeInTheOrderTheyCame) {
  RefusedSockets refused(8);
  std::vector<Held> held(3);
  for (size_t i = 0; i < 3; ++i) refused.Hold(held[i].Open(), int64_t(i));
  refused.CloseExpired(kHoldNs - 1);
  EXPECT_FALSE(held[0].closed());
  refused.CloseExpired(kHoldNs + 1);
  EXPECT_TRUE(held[0].closed());
  EXPECT_TRUE(held[1].closed());
  EXPECT_FALSE(held[2].closed());
  refused.CloseExpired(kHoldNs + 2);
  EXPECT_TRUE(held[2].closed());
  EXPECT_TRUE(refused.empty());
}

TEST(RefusedSocketsTest, TheOldestGivesItsPlaceUp) {
  RefusedSockets refused(2);
  std::vector<Held> held(3);
  for (Held& one : held) refused.Hold(one.Open(), 0);
  EXPECT_EQ(refused.size(), 2u);
  EXPECT_TRUE(held[0].closed());
  EXPECT_FALSE(held[1].closed());
  EXPECT_FALSE(held[2].closed());
}

TEST(RefusedSocketsTest, WithoutPlacesClosesAtOnce) {
  RefusedSockets refused(0);
  Held held;
  refused.Hold(held.Open(), 0);
  EXPECT_TRUE(held.closed());
}

TEST(RefusedSocketsTest, GivesAllDescriptorsBack) {
  RefusedSockets refused(8);
  std::vector<Held> held(5);
  for (Held& one : held) refused.Hold(one.Open(), 0);
  refused.CloseAll();
  for (const Held& one : held) EXPECT_TRUE(one.closed());
  EXPECT_TRUE(refused.empty());
}

}  // namespace
}  // namespace sluice
