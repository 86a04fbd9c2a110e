#include "engine/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"
#include "engine/text/pcre_syntax.h"
#include "engine/text/utf8.h"

namespace sluice {
namespace {

constexpr size_t kMaxPatternBytes = size_t{64} << 10;

struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};

std::string PcreMessage(int error) {
  PCRE2_UCHAR message[256] = {};
  pcre2_get_error_message(error, message, sizeof(message));
  return reinterpret_cast<const char*>(message);
}

}  // namespace

struct Regex::Code {
  std::unique_ptr<pcre2_code, CodeDeleter> code;
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

absl::StatusOr<Regex> Regex::Create(const TextPattern& pattern) {
  if (pattern.text.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("pattern: found ", pattern.text.size(), " bytes, expected at most ", kMaxPatternBytes));
  }
  if (!pattern.is_regex && pattern.text.empty()) {
    return absl::InvalidArgumentError("pattern: found an empty text, expected at least one character");
  }
  std::string source = pattern.text;
  if (pattern.is_regex) {
    SLUICE_ASSIGN_OR_RETURN(source, ToPcreSyntax(pattern.text));
  }
  const uint32_t options = pattern.is_regex ? PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE : PCRE2_UTF | PCRE2_LITERAL;
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(), options, &error, &offset, nullptr));
  if (code->code == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("pattern ", Quote(pattern.text), ": ", PcreMessage(error),
                                                   " at byte ", offset, " of its PCRE2 form ", Quote(source)));
  }
  // Without permission for executable memory this fails, and matching goes on without.
  (void)pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE);
  return Regex(std::move(code));
}

struct Regex::Search::State {
  const pcre2_code* code;
  std::unique_ptr<pcre2_match_data, MatchDataDeleter> data;
  std::unique_ptr<pcre2_match_context, MatchContextDeleter> context;
};

Regex::Search::Search(const Regex& regex) : state_(std::make_unique<State>()) {
  state_->code = regex.code_->code.get();
  state_->data.reset(pcre2_match_data_create(1, nullptr));
  state_->context.reset(pcre2_match_context_create(nullptr));
  SLUICE_CHECK(state_->data != nullptr && state_->context != nullptr);
}
Regex::Search::~Search() = default;

absl::Status Regex::Search::FindAll(absl::string_view text, std::vector<TextRange>* matches) {
  constexpr size_t kMatchSteps = 10'000, kMatchStepsPerByte = 64;
  const size_t limit = kMatchSteps + kMatchStepsPerByte * text.size();
  pcre2_set_match_limit(state_->context.get(), static_cast<uint32_t>(std::min<size_t>(limit, UINT32_MAX)));
  const auto match = [&](size_t from, uint32_t options) {
    return pcre2_match(state_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK | options, state_->data.get(), state_->context.get());
  };
  size_t last_end = absl::string_view::npos;
  for (size_t from = 0; from <= text.size();) {
    int rc = match(from, 0);
    // Compiled code keeps its backtracking on a small stack; the interpreter keeps it on the heap.
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = match(from, PCRE2_NO_JIT);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      return absl::InvalidArgumentError(absl::StrCat("text cannot be split into words: ", PcreMessage(rc),
                                                     " after byte ", from, " of ", text.size()));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(state_->data.get());
    const TextRange found = {ends[0], ends[1]};
    if (found.begin == found.end && found.end == last_end) {
      from = from < text.size() ? from + Utf8Length(text[from]) : from + 1;
      continue;
    }
    matches->push_back(found);
    from = last_end = found.end;
  }
  return absl::OkStatus();
}

}  // namespace sluice
