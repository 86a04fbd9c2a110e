#include "client/cli/answer.h"

#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/terminal.h"
#include "client/cli/word_wrap.h"

namespace sluice::cli {
namespace {

using Json = nlohmann::ordered_json;

Json LogprobsJson(const google::protobuf::RepeatedPtrField<v1::PositionLogprobs>& positions) {
  Json result = Json::array();
  for (const auto& position : positions) {
    Json top = Json::array();
    for (const auto& token : position.top())
      top.push_back({{"token_id", token.token_id()}, {"logprob", token.logprob()}});
    result.push_back({{"token_id", position.chosen().token_id()},
                      {"logprob", position.chosen().logprob()},
                      {"rank", position.rank()},
                      {"top", std::move(top)}});
  }
  return result;
}

Json ChoiceJson(const v1::Choice& choice) {
  Json result = {{"text", choice.text()},
                 {"token_ids", std::vector<uint32_t>(choice.token_ids().begin(), choice.token_ids().end())},
                 {"finish_reason", FinishReasonName(choice.finish_reason())}};
  if (choice.matched_stop_case() == v1::Choice::kStopString) result["stop_string"] = choice.stop_string();
  if (choice.matched_stop_case() == v1::Choice::kStopTokenId) result["stop_token_id"] = choice.stop_token_id();
  if (choice.logprobs_size() > 0) result["logprobs"] = LogprobsJson(choice.logprobs());
  return result;
}

// From the stream's thread to ours. The stream never waits for the printing: a full pipe must not keep Ctrl-C from it.
class EventQueue {
 public:
  client::StreamHandler Handler() {
    client::StreamHandler handler;
    handler.on_started = [this](const v1::Started& event) {
      AnswerEvent wrapped;
      *wrapped.mutable_started() = event;
      Push(std::move(wrapped));
    };
    handler.on_delta = [this](const v1::Delta& event) {
      AnswerEvent wrapped;
      *wrapped.mutable_delta() = event;
      Push(std::move(wrapped));
    };
    handler.on_choice_finished = [this](const v1::ChoiceFinished& event) {
      AnswerEvent wrapped;
      *wrapped.mutable_choice_finished() = event;
      Push(std::move(wrapped));
    };
    handler.on_completed = [this](const v1::Completed& event) {
      AnswerEvent wrapped;
      *wrapped.mutable_completed() = event;
      Push(std::move(wrapped));
    };
    handler.on_done = [this](const absl::Status&) {
      const std::lock_guard<std::mutex> lock(mutex_);
      ended_ = true;
      changed_.notify_one();
    };
    return handler;
  }

  // The next event; nothing if none came within `patience`, or at the end.
  std::optional<AnswerEvent> Next(std::chrono::milliseconds patience) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, patience, [this] { return ended_ || !events_.empty(); });
    if (events_.empty()) return std::nullopt;
    AnswerEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

  bool AtEnd() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ended_ && events_.empty();
  }

 private:
  void Push(AnswerEvent event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<AnswerEvent> events_;  // guarded by mutex_
  bool ended_ = false;              // guarded by mutex_
};

// What an event puts on stdout at once.
std::string TextNow(const AnswerEvent& event, const GenerateFlags& flags, WordWrap& wrap) {
  if (flags.live()) {
    if (!StdoutIsTerminal()) return event.delta().text();
    const std::string text = Printable(event.delta().text());
    return flags.wrap_words && StdoutMovesCursor() ? wrap.Add(text, TerminalWidth(STDOUT_FILENO)) : text;
  }
  if (!flags.jsonl) return "";
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string line;
  // Cannot fail: the events hold no Any and no foreign JSON.
  (void)google::protobuf::util::MessageToJsonString(event, &line, options);
  return line + "\n";
}

std::string TextAtEnd(const Answer& answer, const GenerateFlags& flags) {
  if (flags.live()) return answer.choices().empty() ? "" : "\n";
  if (flags.jsonl) return "";
  if (flags.json) return ToJson(answer) + "\n";
  std::string text;
  const int n = answer.choices_size();
  for (int i = 0; i < n; ++i) {
    // As head and tail mark several files.
    if (n > 1) absl::StrAppend(&text, i > 0 ? "\n" : "", "==> ", i + 1, " of ", n, " <==\n");
    absl::StrAppend(&text, answer.choices(i).text(), "\n");
  }
  return StdoutIsTerminal() ? Printable(text) : text;
}

int ReportLostOutput(int error) {
  std::cerr << "sluice: cannot write to stdout: " << std::strerror(error) << std::endl;
  return kExitFailed;
}

}  // namespace

std::string FinishReasonName(v1::FinishReason reason) {
  const std::string kPrefix = "FINISH_REASON_";
  std::string name = v1::FinishReason_Name(reason);
  if (name.rfind(kPrefix, 0) == 0) name.erase(0, kPrefix.size());
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return name;
}

std::string ToJson(const Answer& answer) {
  Json result;
  if (answer.choices_size() == 1) {
    result = ChoiceJson(answer.choices(0));
  } else {
    result["choices"] = Json::array();
    for (const auto& choice : answer.choices()) result["choices"].push_back(ChoiceJson(choice));
  }
  if (answer.prompt_logprobs_size() > 0) result["prompt_logprobs"] = LogprobsJson(answer.prompt_logprobs());
  result["model"] = answer.model();
  result["request_id"] = answer.request_id();
  result["seed"] = absl::StrCat(answer.seed());
  result["usage"] = {{"prompt_tokens", answer.usage().prompt_tokens()},
                     {"completion_tokens", answer.usage().completion_tokens()},
                     {"cached_tokens", answer.usage().cached_tokens()}};
  result["timings"] = {{"queue_ms", answer.timings().queue_ms()},
                       {"prefill_ms", answer.timings().prefill_ms()},
                       {"decode_ms", answer.timings().decode_ms()},
                       {"ttft_ms", answer.timings().ttft_ms()}};
  // A text may hold U+FFFD but never broken UTF-8; `replace` keeps a surprise from ending the program.
  return result.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string StatsLine(const Answer& answer) {
  const auto& usage = answer.usage();
  const auto& timings = answer.timings();
  const auto rate = [](double tokens, double ms) {
    return tokens > 0 && ms > 0 ? absl::StrFormat(" at %.1f tok/s", tokens / ms * 1000) : std::string();
  };
  const double computed = double(usage.prompt_tokens()) - usage.cached_tokens();
  // The first token of each choice belongs to the prompt's time.
  const double decoded = double(usage.completion_tokens()) - double(answer.choices_size());
  return absl::StrFormat("%d prompt tokens%s, TTFT %.0f ms, %d tokens%s, %.0f ms in all", usage.prompt_tokens(),
                         rate(computed, timings.prefill_ms()), timings.ttft_ms(), usage.completion_tokens(),
                         rate(decoded, timings.decode_ms()), timings.ttft_ms() + timings.decode_ms());
}

StreamResult RunStream(const StreamStarter& start, const GenerateFlags& flags) {
  InterruptScope interrupts;
  EventQueue events;
  Answer answer;
  WordWrap wrap;
  Progress progress(flags.live() ? "waiting for the first token" : "tokens",
                    flags.live() ? 0 : int64_t{flags.max_tokens.value_or(0)} * flags.n.value_or(1));
  int64_t num_tokens = 0;
  int write_error = 0;  // errno
  bool printed = false, cancelled = false;
  const std::unique_ptr<client::Stream> stream = start(events.Handler());
  while (!events.AtEnd()) {
    // A signal handler may only set a flag, so the flag is looked at 50 times a second.
    std::optional<AnswerEvent> event = events.Next(std::chrono::milliseconds(20));
    if (InterruptScope::Interrupted() || write_error != 0) {
      if (!cancelled) stream->Cancel();
      cancelled = true;
    }
    if (event) {
      num_tokens += event->delta().token_ids_size();
      const std::string text = cancelled ? "" : TextNow(*event, flags, wrap);
      Fold(*std::move(event), &answer);
      if (!text.empty()) progress.Hide();
      printed = printed || !text.empty();
      if (!WriteStdout(text) && !InterruptScope::Interrupted()) write_error = errno;
    }
    if (!printed) progress.Update(num_tokens);
  }
  progress.Hide();
  StreamResult result{kExitOk, stream->Wait(), std::move(answer)};
  const bool complete = result.status.ok() && !cancelled;
  if (write_error == 0 && (complete || flags.live()) && !WriteStdout(TextAtEnd(result.answer, flags))) {
    if (!InterruptScope::Interrupted()) write_error = errno;
    cancelled = true;
  }
  if (write_error != 0) {
    result.code = ReportLostOutput(write_error);
  } else if (cancelled) {
    result.code = kExitInterrupted;
  } else if (!result.status.ok()) {
    result.code = Report(result.status);
  } else if (flags.stats) {
    std::cerr << Dim(StatsLine(result.answer)) << std::endl;
  }
  return result;
}

}  // namespace sluice::cli
