// The guard alone: the verdict on what a client sends, in whatever pieces it comes.
#include "server/net/frame_guard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/server/raw_http2.h"

namespace sluice {
namespace {

using raw::Cancel;
using raw::Frame;

constexpr int64_t kSecond = 1'000'000'000;
const std::string kHello = raw::kPreface + Frame(raw::kSettings, 0, 0);

// Small enough to be reached by a test.
GuardLimits SmallLimits() {
  GuardLimits limits;
  limits.resets = {.per_second = 10, .burst = 20};
  limits.control_frames = {.per_second = 10, .burst = 50};
  limits.max_header_bytes = 1000;
  limits.max_continuations = 3;
  limits.max_unfinished_requests = 8;
  return limits;
}

std::string Open(uint32_t stream, uint8_t flags = raw::kEndHeaders) {
  return Frame(raw::kHeaders, flags, stream, raw::RequestHeaders());
}
std::string Whole(uint32_t stream) {
  return Open(stream) + Frame(raw::kData, raw::kEndStream, stream, raw::Message("abc"));
}

class FrameGuardTest : public ::testing::Test {
 protected:
  std::optional<CutReason> Read(const std::string& bytes) { return guard_.Read(bytes, now_); }

  // The verdict on all of `bytes` must not depend on how they are split. -1: they pass.
  int VerdictOn(const std::string& bytes) {
    std::mt19937 random(1);
    int first = -2;
    for (const size_t piece : {bytes.size(), size_t{1}, size_t{0}, size_t{0}}) {  // 0: random pieces
      FrameGuard guard(&limits_, nullptr, 0);
      std::optional<CutReason> cut;
      for (size_t at = 0; at < bytes.size() && !cut.has_value();) {
        const size_t count = std::min(bytes.size() - at, piece == 0 ? 1 + random() % 40 : piece);
        cut = guard.Read(bytes.substr(at, count), 0);
        at += count;
        EXPECT_LE(guard.held_bytes(), at);
        EXPECT_LE(guard.held_bytes(), limits_.max_header_bytes + 9 * size_t(limits_.max_continuations + 2));
      }
      const int verdict = cut.has_value() ? int(*cut) : -1;
      if (first == -2) first = verdict;
      EXPECT_EQ(verdict, first) << "pieces of " << piece;
    }
    return first;
  }

  GuardLimits limits_ = SmallLimits();
  FrameGuard guard_{&limits_, nullptr, 0};
  int64_t now_ = 0;
};

#define EXPECT_CUT(bytes, reason) EXPECT_EQ(VerdictOn(bytes), int(CutReason::reason))
#define EXPECT_PASSES(bytes) EXPECT_EQ(VerdictOn(bytes), -1)

TEST_F(FrameGuardTest, HonestCallsPassInAnyPieces) {
  std::string bytes = kHello + Frame(raw::kSettings, raw::kAck, 0) + Frame(raw::kWindowUpdate, 0, 0, "\1\0\0\0");
  for (uint32_t i = 0; i < 100; ++i) bytes += Whole(1 + 2 * i);
  EXPECT_PASSES(bytes);
}

TEST_F(FrameGuardTest, WhatIsNotHttp2IsSeenAtItsFirstByte) {
  EXPECT_CUT("GET / HTTP/1.1\r\n", kNotHttp2);
  EXPECT_CUT("PRI * HTTP/1", kNotHttp2);
  EXPECT_CUT(std::string("\x16\x03\x01", 3), kNotHttp2);
  EXPECT_EQ(Read("P"), std::nullopt);
  EXPECT_FALSE(guard_.greeted());
  EXPECT_EQ(guard_.held_bytes(), 1u);
}

TEST_F(FrameGuardTest, HeadersAreHeldUntilTheyAreWhole) {
  ASSERT_EQ(Read(kHello), std::nullopt);
  EXPECT_EQ(guard_.held_bytes(), 0u);
  const std::string headers = Frame(raw::kHeaders, 0, 1, "abc"), more = Frame(raw::kContinuation, 0, 1, "d"),
                    end = Frame(raw::kContinuation, raw::kEndHeaders, 1, "efg");
  ASSERT_EQ(Read(headers), std::nullopt);
  EXPECT_EQ(guard_.held_bytes(), headers.size());
  ASSERT_EQ(Read(more), std::nullopt);
  EXPECT_EQ(guard_.held_bytes(), headers.size() + more.size());
  ASSERT_EQ(Read(end.substr(0, 11)), std::nullopt);
  EXPECT_EQ(guard_.held_bytes(), headers.size() + more.size() + 11);
  ASSERT_EQ(Read(end.substr(11) + "\0\0"), std::nullopt);
  EXPECT_EQ(guard_.held_bytes(), 0u);
}

TEST_F(FrameGuardTest, DataIsNotHeldButForTheHeadOfAFrame) {
  ASSERT_EQ(Read(kHello + Open(1)), std::nullopt);
  const std::string data = Frame(raw::kData, raw::kEndStream, 1, raw::Message(std::string(300, 'x')));
  ASSERT_EQ(Read(data.substr(0, 8)), std::nullopt);
  EXPECT_EQ(guard_.held_bytes(), 8u);
  ASSERT_EQ(Read(data.substr(8, 2)), std::nullopt);
  EXPECT_EQ(guard_.held_bytes(), 0u);
}

TEST_F(FrameGuardTest, HeadersAreBoundedBeforeTheyAreThere) {
  const std::string large = Frame(raw::kHeaders, raw::kEndHeaders, 1, std::string(1001, 'x'));
  EXPECT_CUT(kHello + large.substr(0, 9), kHeaderSize);
  EXPECT_PASSES(kHello + Frame(raw::kHeaders, raw::kEndHeaders, 1, std::string(1000, 'x')));
  EXPECT_CUT(kHello + Frame(raw::kHeaders, 0, 1, std::string(600, 'x')) +
                 Frame(raw::kContinuation, raw::kEndHeaders, 1, std::string(401, 'x')),
             kHeaderSize);
}

TEST_F(FrameGuardTest, HeadersInManyPiecesAreCut) {
  std::string bytes = kHello + Frame(raw::kHeaders, 0, 1, "a");
  for (int i = 0; i < 3; ++i) bytes += Frame(raw::kContinuation, 0, 1, i % 2 == 0 ? "" : "b");
  EXPECT_PASSES(bytes);
  EXPECT_CUT(bytes + Frame(raw::kContinuation, raw::kEndHeaders, 1, "b"), kContinuations);
}

TEST_F(FrameGuardTest, NothingMayComeBetweenThePiecesOfHeaders) {
  const std::string begun = kHello + Frame(raw::kHeaders, 0, 1, "a");
  EXPECT_CUT(begun + Frame(raw::kPing, 0, 0, "12345678"), kMalformedFrame);
  EXPECT_CUT(begun + Open(3), kMalformedFrame);
  EXPECT_CUT(begun + Frame(raw::kContinuation, raw::kEndHeaders, 3, "a"), kMalformedFrame);
  EXPECT_CUT(kHello + Frame(raw::kContinuation, raw::kEndHeaders, 1, "a"), kMalformedFrame);
  EXPECT_CUT(kHello + Open(2), kMalformedFrame);
  EXPECT_CUT(kHello + Open(0), kMalformedFrame);
  EXPECT_CUT(kHello + Frame(raw::kPushPromise, raw::kEndHeaders, 1, "abcd"), kMalformedFrame);
}

TEST_F(FrameGuardTest, ResetsBeyondTheAllowanceAreCut) {
  std::string bytes = kHello;
  for (uint32_t i = 0; i < 20; ++i) bytes += Open(1 + 2 * i) + Cancel(1 + 2 * i);
  EXPECT_PASSES(bytes);
  EXPECT_CUT(bytes + Open(101) + Cancel(101), kResets);
  EXPECT_CUT(bytes + Cancel(1), kResets) << "a stream that has ended";
  EXPECT_CUT(bytes + Open(1), kResets) << "headers of a stream that has ended";
}

TEST_F(FrameGuardTest, TimeGivesTheAllowanceBack) {
  ASSERT_EQ(Read(kHello), std::nullopt);
  for (int i = 0; i < 20; ++i) ASSERT_EQ(Read(Cancel(1)), std::nullopt);
  now_ += kSecond / 2;
  for (int i = 0; i < 5; ++i) ASSERT_EQ(Read(Cancel(1)), std::nullopt);
  EXPECT_EQ(Read(Cancel(1)), CutReason::kResets);
}

TEST_F(FrameGuardTest, FramesThatCarryNothingAreCut) {
  const std::pair<std::string, int> kFloods[] = {
      {Frame(raw::kPing, 0, 0, "12345678"), 45},        {Frame(raw::kPing, raw::kAck, 0, "12345678"), 45},
      {Frame(raw::kSettings, 0, 0), 5},                 {Frame(raw::kSettings, raw::kAck, 0), 51},
      {Frame(raw::kWindowUpdate, 0, 0, "\0\0\0\1"), 49}, {Frame(raw::kPriority, 0, 3, "12345"), 47},
      {Frame(99, 0, 0, std::string(640, 'x')), 5},      {Frame(raw::kData, 0, 1, ""), 50},
      {Frame(raw::kData, 0, 1, "x"), 50},               {Frame(raw::kData, raw::kEndStream, 1, ""), 50}};
  for (const auto& [frame, enough] : kFloods) {
    std::string bytes = raw::kPreface;
    for (int i = 0; i < enough - 5; ++i) bytes += frame;
    if (enough > 10) {
      EXPECT_PASSES(bytes) << int(frame[3]);
    }
    for (int i = 0; i < 20; ++i) bytes += frame;
    EXPECT_CUT(bytes, kControlFrames) << int(frame[3]);
  }
}

TEST_F(FrameGuardTest, LargePiecesOfARequestCostNothing) {
  const std::string message = raw::Message(std::string(100000, 'x'));
  std::string bytes = kHello + Open(1) + Frame(raw::kData, 0, 1, message.substr(0, 16384));
  for (int i = 0; i < 100; ++i) bytes += Frame(raw::kData, 0, 1, std::string(256, 'x'));
  EXPECT_PASSES(bytes);
}

TEST_F(FrameGuardTest, WhoIsSentMuchMayAcknowledgeMuch) {
  ASSERT_EQ(Read(kHello), std::nullopt);
  for (int i = 0; i < 1000; ++i) {
    guard_.OnServerBytes(17 + 64);  // the answer to the ping, and a token
    ASSERT_EQ(Read(Frame(raw::kPing, 0, 0, "12345678")), std::nullopt) << i;
  }
  // The answers to pings alone earn nothing.
  std::optional<CutReason> cut;
  for (int i = 0; i < 100 && !cut.has_value(); ++i) {
    guard_.OnServerBytes(17);
    cut = Read(Frame(raw::kPing, 0, 0, "12345678"));
  }
  EXPECT_EQ(cut, CutReason::kControlFrames);
}

TEST_F(FrameGuardTest, ARequestIsIncompleteUntilItsFirstMessageIsThere) {
  now_ = 5;
  ASSERT_EQ(Read(kHello), std::nullopt);
  EXPECT_EQ(guard_.num_unfinished(), 0u);
  EXPECT_EQ(guard_.oldest_incomplete_ns(), std::numeric_limits<int64_t>::max());
  ASSERT_EQ(Read(Open(1)), std::nullopt);
  EXPECT_EQ(guard_.oldest_incomplete_ns(), 5);
  const std::string message = raw::Message("abcdef");
  now_ = 7;
  ASSERT_EQ(Read(Frame(raw::kData, 0, 1, message.substr(0, 3)) + Frame(raw::kData, 0, 1, message.substr(3, 4))),
            std::nullopt);
  EXPECT_EQ(guard_.oldest_incomplete_ns(), 5);
  ASSERT_EQ(Read(Frame(raw::kData, 0, 1, message.substr(7))), std::nullopt);
  EXPECT_EQ(guard_.oldest_incomplete_ns(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(guard_.num_unfinished(), 1u);
  EXPECT_EQ(guard_.oldest_unfinished_ns(), 5);
  ASSERT_EQ(Read(Frame(raw::kData, raw::kEndStream, 1)), std::nullopt);
  EXPECT_EQ(guard_.num_unfinished(), 0u);
  EXPECT_TRUE(guard_.has_requested());
}

TEST_F(FrameGuardTest, PaddingIsNoPartOfAMessage) {
  ASSERT_EQ(Read(kHello + Open(1)), std::nullopt);
  const std::string message = raw::Message("abc");
  const std::string padding(32, 'x');
  ASSERT_EQ(Read(Frame(raw::kData, raw::kPadded, 1, "\x20" + message.substr(0, 4) + padding)), std::nullopt);
  EXPECT_EQ(guard_.oldest_incomplete_ns(), 0);
  ASSERT_EQ(Read(Frame(raw::kData, raw::kPadded, 1, "\x02" + message.substr(4) + "xx")), std::nullopt);
  EXPECT_NE(guard_.oldest_incomplete_ns(), 0);
  EXPECT_CUT(kHello + Open(1) + Frame(raw::kData, raw::kPadded, 1, "\x02x"), kMalformedFrame);
  EXPECT_CUT(kHello + Open(1) + Frame(raw::kData, raw::kPadded, 1, ""), kMalformedFrame);
}

TEST_F(FrameGuardTest, ARequestEndsByItsEndOrItsReset) {
  ASSERT_EQ(Read(kHello + Open(1) + Open(3) + Open(5, raw::kEndHeaders | raw::kEndStream)), std::nullopt);
  EXPECT_EQ(guard_.num_unfinished(), 2u);
  ASSERT_EQ(Read(Cancel(3)), std::nullopt);
  EXPECT_EQ(guard_.num_unfinished(), 1u);
  const std::string data = Frame(raw::kData, raw::kEndStream, 1, raw::Message("abc"));
  ASSERT_EQ(Read(data.substr(0, data.size() - 1)), std::nullopt);
  EXPECT_EQ(guard_.num_unfinished(), 1u) << "the end is announced, but not there";
  ASSERT_EQ(Read(data.substr(data.size() - 1)), std::nullopt);
  EXPECT_EQ(guard_.num_unfinished(), 0u);
}

TEST_F(FrameGuardTest, ManyRequestsAtATimeAreCutOnlyWhileUnfinished) {
  std::string open = kHello, whole = kHello;
  for (uint32_t i = 0; i < 8; ++i) open += Open(1 + 2 * i);
  for (uint32_t i = 0; i < 30; ++i) whole += Whole(1 + 2 * i);
  EXPECT_PASSES(open);
  EXPECT_CUT(open + Open(17), kUnfinishedRequests);
  EXPECT_PASSES(whole);
}

TEST_F(FrameGuardTest, ConnectionsOfAPeerShareAnAllowance) {
  limits_.peer_factor = 1.5;
  PeerBudget peer(limits_, 0);
  FrameGuard first(&limits_, &peer, 0), second(&limits_, &peer, 0), third(&limits_, &peer, 0);
  for (FrameGuard* guard : {&first, &second, &third}) ASSERT_EQ(guard->Read(kHello, 0), std::nullopt);
  for (int i = 0; i < 20; ++i) ASSERT_EQ(first.Read(Cancel(1), 0), std::nullopt);
  for (int i = 0; i < 10; ++i) ASSERT_EQ(second.Read(Cancel(1), 0), std::nullopt);
  EXPECT_EQ(second.Read(Cancel(1), 0), CutReason::kResets);
  // Who did not take part is not blamed.
  EXPECT_EQ(third.Read(Cancel(1), 0), std::nullopt);
}

}  // namespace
}  // namespace sluice
