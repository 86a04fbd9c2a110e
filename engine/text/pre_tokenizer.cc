#include "engine/text/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/check.h"
#include "engine/base/status_macros.h"
#include "engine/text/pcre_syntax.h"
#include "engine/text/utf8.h"

namespace sluice {
namespace {

// GPT-2's pattern: contractions, then runs of letters, of numbers and of the rest, each with one space before it.
constexpr absl::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Every number by itself. Hugging Face's "Digits" step asks Rust's standard library, whose tables are Unicode 17: it
// knows the two ranges that \p{N} of Unicode 16 does not.
constexpr absl::string_view kSingleNumber = R"([\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}])";
// Llama 3's, from cl100k: contractions in either case, numbers in threes, punctuation takes the newlines after it.
constexpr absl::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

const std::vector<PreTokenizerRecipe>& Recipes() {
  static const auto* const recipes = new std::vector<PreTokenizerRecipe>{
      {.name = "gpt-2", .patterns = {kGpt2}},
      {.name = "smollm", .patterns = {kSingleNumber, kGpt2}},
      {.name = "llama-bpe", .patterns = {kLlama3}, .ignore_merges = true},
  };
  return *recipes;
}

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

// What one Split call needs to match one pattern; not shared between threads.
struct MatchState {
  std::unique_ptr<pcre2_match_data, MatchDataDeleter> data;
  std::unique_ptr<pcre2_match_context, MatchContextDeleter> context;
};

}  // namespace

class PreTokenizer::Pattern {
 public:
  static absl::StatusOr<Pattern> Create(absl::string_view pattern) {
    SLUICE_ASSIGN_OR_RETURN(const std::string rewritten, ToPcreSyntax(pattern));
    int error = 0;
    PCRE2_SIZE offset = 0;
    Pattern result;
    result.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.data()), rewritten.size(),
                                     PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
    if (result.code_ == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("pattern ", pattern, ": ", PcreMessage(error), " at byte ", offset,
                                                     " of its PCRE2 form ", rewritten));
    }
    // Without permission for executable memory this fails, and matching goes on without.
    (void)pcre2_jit_compile(result.code_.get(), PCRE2_JIT_COMPLETE);
    return result;
  }

  MatchState NewState() const {
    MatchState state;
    state.data.reset(pcre2_match_data_create(1, nullptr));
    state.context.reset(pcre2_match_context_create(nullptr));
    SLUICE_CHECK(state.data != nullptr && state.context != nullptr);
    return state;
  }

  // Appends the matches in `piece` and the gaps between them.
  absl::Status Split(absl::string_view piece, MatchState* state, std::vector<absl::string_view>* words) const {
    constexpr size_t kMatchSteps = 10'000, kMatchStepsPerByte = 64;
    const size_t limit = kMatchSteps + kMatchStepsPerByte * piece.size();
    pcre2_set_match_limit(state->context.get(), static_cast<uint32_t>(std::min<size_t>(limit, UINT32_MAX)));
    size_t done = 0;  // words cover piece[0, done)
    for (size_t from = 0; from < piece.size();) {
      const int rc = Match(piece, from, state);
      if (rc == PCRE2_ERROR_NOMATCH) break;
      if (rc < 0) {
        return absl::InvalidArgumentError(absl::StrCat("text cannot be split into words: ", PcreMessage(rc),
                                                       " after byte ", from, " of ", piece.size()));
      }
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(state->data.get());
      const size_t begin = ends[0], end = ends[1];
      if (begin == end) {  // an empty match is no word
        if (begin == piece.size()) break;
        from = begin + Utf8Length(piece[begin]);
        continue;
      }
      if (begin > done) words->push_back(piece.substr(done, begin - done));
      words->push_back(piece.substr(begin, end - begin));
      done = from = end;
    }
    if (done < piece.size()) words->push_back(piece.substr(done));
    return absl::OkStatus();
  }

 private:
  int Match(absl::string_view piece, size_t from, MatchState* state) const {
    const auto match = [&](uint32_t options) {
      return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(piece.data()), piece.size(), from,
                         PCRE2_NO_UTF_CHECK | options, state->data.get(), state->context.get());
    };
    const int rc = match(0);
    // Compiled code keeps its backtracking on a small stack; the interpreter keeps it on the heap.
    return rc == PCRE2_ERROR_JIT_STACKLIMIT ? match(PCRE2_NO_JIT) : rc;
  }

  std::unique_ptr<pcre2_code, CodeDeleter> code_;
};

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

absl::StatusOr<const PreTokenizerRecipe*> FindPreTokenizerRecipe(absl::string_view name) {
  for (const PreTokenizerRecipe& recipe : Recipes()) {
    if (recipe.name == name) return &recipe;
  }
  const auto append_name = [](std::string* out, const PreTokenizerRecipe& recipe) {
    absl::StrAppend(out, recipe.name);
  };
  return absl::InvalidArgumentError(absl::StrCat("tokenizer pre: found \"", name, "\", expected one of ",
                                                 absl::StrJoin(Recipes(), ", ", append_name)));
}

absl::StatusOr<PreTokenizer> PreTokenizer::Create(absl::Span<const absl::string_view> patterns) {
  PreTokenizer result;
  for (const absl::string_view pattern : patterns) {
    SLUICE_ASSIGN_OR_RETURN(Pattern compiled, Pattern::Create(pattern));
    result.patterns_.push_back(std::move(compiled));
  }
  return result;
}

absl::Status PreTokenizer::Split(absl::string_view text, std::vector<absl::string_view>* words) const {
  std::vector<absl::string_view> pieces, next;
  if (!text.empty()) pieces.push_back(text);
  for (const Pattern& pattern : patterns_) {
    MatchState state = pattern.NewState();
    next.clear();
    for (const absl::string_view piece : pieces) {
      SLUICE_RETURN_IF_ERROR(pattern.Split(piece, &state, &next));
    }
    pieces.swap(next);
  }
  words->insert(words->end(), pieces.begin(), pieces.end());
  return absl::OkStatus();
}

}  // namespace sluice
