// Log lines: one line each whatever is in them, out before the end, and never waited for.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <regex>
#include <string>
#include <thread>

#include "engine/base/check.h"
#include "engine/base/log.h"
#include "server/library_log.h"
#include "server/log_writer.h"

namespace sluice {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe(ends_), 0); }
  ~Pipe() {
    CloseReader();
    close(ends_[1]);
  }
  void CloseReader() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }
  int writer() const { return ends_[1]; }
  // What comes until nothing has come for a while.
  std::string Read() const {
    std::string text;
    char piece[4096];
    pollfd ready{.fd = ends_[0], .events = POLLIN, .revents = 0};
    while (poll(&ready, 1, 300) == 1) {
      const ssize_t size = read(ends_[0], piece, sizeof piece);
      if (size <= 0) break;
      text.append(piece, size_t(size));
    }
    return text;
  }

 private:
  int ends_[2] = {-1, -1};
};

// Lines go to `writer` while it lives.
class Installed {
 public:
  explicit Installed(LogWriter* writer) { SetLogSink(writer); }
  ~Installed() { SetLogSink(nullptr); }
};

std::string Logged(const std::string& text) {
  Pipe pipe;
  LogWriter writer(pipe.writer());
  const Installed installed(&writer);
  LogInfo(text);
  writer.Flush();
  return pipe.Read();
}

TEST(Log, ALineIsOneLineWhateverItsTextHolds) {
  EXPECT_THAT(Logged("plain"), EndsWith("Z INFO plain\n"));
  EXPECT_THAT(Logged("a\nb\r\x1b[31m\x7f\t\\"), EndsWith("INFO a\\x0ab\\x0d\\x1b[31m\\x7f\\x09\\\n"));
  EXPECT_THAT(Logged("Gr\xc3\xb6\xc3\x9f" "e \xe6\x97\xa5 \xf0\x9f\x98\x80"),
              EndsWith("INFO Gr\xc3\xb6\xc3\x9f" "e \xe6\x97\xa5 \xf0\x9f\x98\x80\n"));
  // A control of ISO 8859, half a character, an overlong one, and one that turns the line's direction.
  EXPECT_THAT(Logged("\xc2\x9b" "2J \xc3 \xc0\xaf \xe2\x80\xae."),
              EndsWith("INFO \\xc2\\x9b2J \\xc3 \\xc0\\xaf \\xe2\\x80\\xae.\n"));
  const std::string cut = Logged(std::string(1 << 20, 'x'));
  EXPECT_LT(cut.size(), 20'000u);
  EXPECT_THAT(cut, EndsWith("x...\n"));
}

TEST(Log, WhoLogsNeverWaitsForWhoReads) {
  Pipe pipe;
  LogWriter writer(pipe.writer(), 64 << 10);
  const Installed installed(&writer);
  const int64_t dropped_before = DroppedLogLines();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 10'000; ++i) LogInfo("a line of about a hundred bytes, which nobody reads for now, however many come");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  const int64_t dropped = DroppedLogLines() - dropped_before;
  EXPECT_GT(dropped, 5'000);
  const std::string text = pipe.Read() + pipe.Read();
  int64_t told = 0;
  const std::regex kTold("WARNING ([0-9]+) log lines were dropped");
  for (std::sregex_iterator it(text.begin(), text.end(), kTold), end; it != end; ++it) told += std::stoll((*it)[1]);
  EXPECT_EQ(told, dropped);
  LogInfo("later");
  EXPECT_THAT(pipe.Read(), HasSubstr("later"));
}

TEST(Log, AFlushOfAStuckPipeGivesUp) {
  Pipe pipe;
  LogWriter writer(pipe.writer());
  for (int i = 0; i < 2'000; ++i) writer.Write(std::string(100, 'x') + "\n");
  const auto start = std::chrono::steady_clock::now();
  writer.Flush();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  pipe.Read();
}

void LogAndDie(bool check) {
  LogWriter writer(STDERR_FILENO);
  SetLogSink(&writer);
  FlushLogOnCrash();
  LogInfo("the last words");
  if (check) SLUICE_CHECK(false && "a bug");
  std::abort();
}

TEST(LogDeathTest, TheLastWordsComeOutBeforeACrash) {
  EXPECT_DEATH(LogAndDie(true), "the last words.*CHECK failed: false && \"a bug\"");
  EXPECT_DEATH(LogAndDie(false), "the last words");
}

TEST(LineLimiter, LetsABurstThroughThenSoManyPerSecond) {
  constexpr int64_t kSecond = 1'000'000'000;
  LineLimiter limiter(5, 2);
  int allowed = 0;
  for (int i = 0; i < 1000; ++i) allowed += limiter.Allow(100 * kSecond);
  EXPECT_EQ(allowed, 5);
  EXPECT_EQ(limiter.TakeNumLeftOut(), 995);
  EXPECT_EQ(limiter.TakeNumLeftOut(), 0);
  allowed = 0;
  for (int i = 0; i < 1000; ++i) allowed += limiter.Allow(100 * kSecond + i * kSecond / 100);  // ten seconds
  EXPECT_NEAR(allowed, 20, 1);
}

}  // namespace
}  // namespace sluice
