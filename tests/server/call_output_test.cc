// From sequence outputs to events, without threads: text, stop strings, characters, counts.
#include "server/calls/call_output.h"

#include <gtest/gtest.h>

#include "engine/text/utf8.h"
#include "proto/answer.h"
#include "server/metrics.h"
#include "tests/server/fake_model.h"

namespace sluice {
namespace {

// Keeps the events, and folds them as a unary call does.
class Recorder final : public ReplySink {
 public:
  void Open(const std::string&, const std::string&) override {}
  void BeginStep() override {}
  void Send(AnswerEvent event) override {
    if (event.has_delta()) deltas.push_back(event.delta());
    Fold(std::move(event), &response);
  }
  void Close(const absl::Status&) override {}

  std::vector<v1::Delta> deltas;
  Answer response;
};

class CallOutputTest : public ::testing::Test {
 protected:
  CallOutputTest() {
    generation_.prompt_tokens = {kStart, 'a'};
    generation_.sampling.max_tokens = 100;
  }

  void StopAt(std::vector<std::string> stops, bool include = false) {
    generation_.stops = std::move(stops);
    generation_.include_stop_text = include;
    generation_.stop_matcher = *StopMatcher::Create(generation_.stops, include);
  }

  // Gives `text` in pieces of `piece` tokens, then the end; returns the choice.
  v1::Choice Run(const std::string& text, size_t piece, FinishReason end = FinishReason::kStop) {
    recorder_ = Recorder();
    CallOutput output(generation_, started_, 0, tokenizer_.get(), &recorder_, &metrics_);
    bool stopped = false;
    for (size_t at = 0; at < text.size() && !stopped; at += piece) {
      SequenceOutput tokens;
      for (char c : text.substr(at, piece)) tokens.tokens.push_back(uint8_t(c));
      const CallOutput::Progress progress = output.Take(0, std::move(tokens), 1000);
      stopped = progress.cancel_sequence;
      EXPECT_EQ(progress.ended, stopped);
    }
    SequenceOutput last;
    last.finish_reason = stopped ? FinishReason::kStopSequence : end;
    if (!stopped && end == FinishReason::kStop) {
      last.tokens = {kEnd};
      last.stop_token = kEnd;
    }
    output.Take(0, std::move(last), 1000);
    EXPECT_TRUE(output.Complete(absl::OkStatus()).ok());
    return recorder_.response.choices_size() > 0 ? recorder_.response.choices(0) : v1::Choice();
  }

  Generation generation_;
  v1::Started started_;
  std::shared_ptr<const Tokenizer> tokenizer_ = FakeTokenizer();
  Metrics metrics_{{.models = {"m"}, .version = "v"}};
  Recorder recorder_;
};

TEST_F(CallOutputTest, TextIsTheSameInPiecesOfAnySize) {
  const std::string text = "a\xC3\xA9 \xE2\x82\xAC\xF0\x9F\x98\x80 end";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_EQ(Run(text, piece).text(), text) << piece;
    for (const v1::Delta& delta : recorder_.deltas) {
      EXPECT_EQ(FindInvalidUtf8(delta.text()), std::string::npos) << piece;
    }
  }
}

TEST_F(CallOutputTest, NoByteOfAStopStringIsSent) {
  StopAt({"</END>", "never"});
  const std::string text = "one </EN two</END> three";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    const v1::Choice choice = Run(text, piece);
    EXPECT_EQ(choice.text(), "one </EN two") << piece;
    EXPECT_EQ(choice.finish_reason(), v1::FINISH_REASON_STOP_SEQUENCE);
    EXPECT_EQ(choice.stop_string(), "</END>");
    std::string sent;
    for (const v1::Delta& delta : recorder_.deltas) sent += delta.text();
    EXPECT_EQ(sent, "one </EN two") << piece;
  }
}

TEST_F(CallOutputTest, IncludeStopTextKeepsTheStopStringWhateverThePieces) {
  StopAt({"END"}, true);
  for (size_t piece = 1; piece <= 10; ++piece) EXPECT_EQ(Run("xEND and more", piece).text(), "xEND") << piece;
}

TEST_F(CallOutputTest, AnOutputThatIsCompleteWithoutATokenIsAnAnswer) {
  CallOutput output(generation_, started_, 0, tokenizer_.get(), &recorder_, &metrics_);
  SequenceOutput only;
  only.finish_reason = FinishReason::kStop;
  EXPECT_TRUE(output.Take(0, std::move(only), 1000).ended);
  EXPECT_TRUE(output.Complete(absl::OkStatus()).ok());
  ASSERT_EQ(recorder_.response.choices_size(), 1);
  EXPECT_EQ(recorder_.response.choices(0).text(), "");
  EXPECT_EQ(recorder_.response.choices(0).finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(recorder_.response.choices(0).matched_stop_case(), v1::Choice::MATCHED_STOP_NOT_SET);
  EXPECT_EQ(recorder_.response.usage().prompt_tokens(), 2u);
}

TEST_F(CallOutputTest, HeldBackTextComesAtTheEnd) {
  StopAt({"hello!"});
  EXPECT_EQ(Run("say hello", 1).text(), "say hello");
  EXPECT_EQ(Run("say hello", 3, FinishReason::kLength).text(), "say hello");
}

TEST_F(CallOutputTest, TextIsHeldBackOnlyWhileItCanBecomeAStopString) {
  StopAt({"xyz"});
  CallOutput output(generation_, started_, 0, tokenizer_.get(), &recorder_, &metrics_);
  const auto give = [&](char c) {
    SequenceOutput token;
    token.tokens = {uint8_t(c)};
    output.Take(0, std::move(token), 1000);
    return recorder_.response.choices_size() > 0 ? recorder_.response.choices(0).text() : "";
  };
  EXPECT_EQ(give('a'), "a");
  EXPECT_EQ(give('x'), "a");
  EXPECT_EQ(give('y'), "a");
  EXPECT_EQ(give('b'), "axyb");
}

TEST_F(CallOutputTest, TheCallHasFoundWhatTheChoiceWithTheFewestHasFoundAmongThoseThatRan) {
  generation_.num_choices = 3;
  CallOutput output(generation_, started_, 0, tokenizer_.get(), &recorder_, &metrics_);
  const auto end = [&](int choice, int32_t num_cached_tokens, int64_t first_scheduled_ns) {
    SequenceOutput last;
    if (first_scheduled_ns > 0) last.tokens = {'a'};
    last.finish_reason = FinishReason::kLength;
    last.num_cached_tokens = num_cached_tokens;
    last.timings.first_scheduled_ns = first_scheduled_ns;
    output.Take(choice, std::move(last), 1000);
  };
  end(0, 48, 100);
  EXPECT_EQ(recorder_.response.usage().cached_tokens(), 48u) << "as the event at the start says";
  end(1, 32, 200);
  end(2, 0, 0);  // it never left the queue
  output.Complete(absl::OkStatus()).IgnoreError();
  EXPECT_EQ(recorder_.response.usage().cached_tokens(), 32u);
}

TEST_F(CallOutputTest, MinTokensDelaysStopStrings) {
  StopAt({"b"});
  generation_.sampling.min_tokens = 4;
  for (size_t piece = 1; piece <= 8; ++piece) {
    const v1::Choice choice = Run("abababab", piece);
    EXPECT_EQ(choice.text(), "ababa") << piece;
    EXPECT_EQ(recorder_.response.usage().completion_tokens(), 6u) << piece;
  }
}

TEST_F(CallOutputTest, AStopStringMayBeginInsideOfTheFirstMinTokens) {
  StopAt({"cde"});
  generation_.sampling.min_tokens = 4;
  for (size_t piece = 1; piece <= 8; ++piece) {
    const v1::Choice choice = Run("abcdefgh", piece);
    EXPECT_EQ(choice.text(), "ab") << piece;
    EXPECT_EQ(choice.stop_string(), "cde");
    EXPECT_EQ(recorder_.response.usage().completion_tokens(), 5u) << piece;
  }
}

TEST_F(CallOutputTest, AnUnfinishedCharacterAtTheEndIsReplaced) {
  EXPECT_EQ(Run("a\xE2\x82", 1, FinishReason::kLength).text(), "a\xEF\xBF\xBD");
}

TEST_F(CallOutputTest, AStopStringMayBeCompletedByTheLastToken) {
  StopAt({"end"});
  const v1::Choice choice = Run("the end", 7, FinishReason::kLength);
  EXPECT_EQ(choice.text(), "the ");
  EXPECT_EQ(choice.finish_reason(), v1::FINISH_REASON_STOP_SEQUENCE);
}

TEST_F(CallOutputTest, TokensAfterTheStopStringAreNotCounted) {
  StopAt({"b"});
  generation_.return_token_ids = true;
  const v1::Choice choice = Run("abcdef", 6);
  EXPECT_EQ(choice.token_ids_size(), 2);
  EXPECT_EQ(recorder_.response.usage().completion_tokens(), 2u);
}

TEST_F(CallOutputTest, ACallThatNeverSpokeHasNoEvents) {
  CallOutput output(generation_, started_, 0, tokenizer_.get(), &recorder_, &metrics_);
  SequenceOutput last;
  last.finish_reason = FinishReason::kDeadline;
  EXPECT_TRUE(output.Take(0, std::move(last), 1000).ended);
  EXPECT_EQ(output.Complete(absl::OkStatus()).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(recorder_.response.ByteSizeLong(), 0u);
}

TEST_F(CallOutputTest, AChoiceThatHasEndedFailsNoMore) {
  StopAt({"b"});
  generation_.num_choices = 2;
  CallOutput output(generation_, started_, 0, tokenizer_.get(), &recorder_, &metrics_);
  SequenceOutput stop;
  stop.tokens = {'b'};
  EXPECT_TRUE(output.Take(0, stop, 1000).cancel_sequence);
  SequenceOutput failure;
  failure.finish_reason = FinishReason::kError;
  failure.error = absl::InternalError("too late");
  EXPECT_TRUE(output.Take(0, failure, 2000).error.ok());
  // The same of one that runs is its failure.
  EXPECT_EQ(output.Take(1, failure, 2000).error.message(), "too late");
}

TEST_F(CallOutputTest, AStoppedEngineIsNotACleanEnd) {
  CallOutput output(generation_, started_, 0, tokenizer_.get(), &recorder_, &metrics_);
  SequenceOutput last;
  last.finish_reason = FinishReason::kCancelled;
  output.Take(0, std::move(last), 1000);
  EXPECT_EQ(output.Complete(absl::OkStatus()).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice
