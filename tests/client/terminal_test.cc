#include "client/cli/terminal.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "client/cli/flag_checks.h"

namespace sluice::cli {
namespace {

TEST(IsValidUtf8, TakesEveryLengthUpToItsLimits) {
  for (const char* text : {"", "ascii", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "Grüße, 世界 👋"}) {
    EXPECT_TRUE(IsValidUtf8(text)) << text;
  }
  EXPECT_TRUE(IsValidUtf8(std::string("a\0b", 3)));
}

TEST(IsValidUtf8, RefusesWhatTheStandardRefuses) {
  for (const char* text : {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xED\xBF\xBF",
                           "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC3", "\xE4\xB8",
                           "\xF0\x9F\x91", "\xC3(", "\xE4(\x96", "\xF0\x9F(\x8B", "ok\xFE"}) {
    EXPECT_FALSE(IsValidUtf8(text));
    EXPECT_NE(CheckUtf8(text), "");
  }
  EXPECT_EQ(CheckUtf8("fine"), "");
  EXPECT_EQ(CheckUtf8("\xFF"), "found 1 bytes that are not valid UTF-8, expected UTF-8");
}

TEST(Printable, ShowsControlsInsteadOfSendingThem) {
  EXPECT_EQ(Printable("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(Printable("\033[31mred"), "^[[31mred");
  EXPECT_EQ(Printable("\r\b\x7F"), "^M^H^?");
  EXPECT_EQ(Printable(std::string("\0", 1)), "^@");
  EXPECT_EQ(Printable("\xC2\x9B"
                      "31m"),
            "\uFFFD31m");  // CSI as one C1 character
  EXPECT_EQ(Printable("\xC2\xA0"
                      "Grüße 世界 👋"),
            "\xC2\xA0"
            "Grüße 世界 👋");
}

TEST(Unescape, KnowsFourEscapesAndLeavesTheRest) {
  EXPECT_EQ(Unescape("\\n\\t\\r"), "\n\t\r");
  EXPECT_EQ(Unescape("\\\\n"), "\\n");
  EXPECT_EQ(Unescape("\\alpha \\"), "\\alpha \\");
  EXPECT_EQ(Unescape("plain"), "plain");
}

TEST(ExitCode, IsTheCodeOfTheCallPlus64) {
  EXPECT_EQ(ExitCode(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCode(absl::CancelledError("")), 65);
  EXPECT_EQ(ExitCode(absl::InvalidArgumentError("")), 67);
  EXPECT_EQ(ExitCode(absl::UnavailableError("")), 78);
}

TEST(InterruptScope, NotesSigintAndRestoresWhatWasBefore) {
  struct sigaction before {};
  sigaction(SIGINT, nullptr, &before);
  {
    const InterruptScope outer;
    EXPECT_FALSE(InterruptScope::Interrupted());
    {
      const InterruptScope inner;
      raise(SIGINT);
      EXPECT_TRUE(InterruptScope::Interrupted());
    }
    raise(SIGINT);  // still does not end the program
    const InterruptScope next;
    EXPECT_FALSE(InterruptScope::Interrupted()) << "a scope begins without a signal";
  }
  struct sigaction after {};
  sigaction(SIGINT, nullptr, &after);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
}

}  // namespace
}  // namespace sluice::cli
