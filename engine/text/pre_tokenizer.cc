#include "engine/text/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"
#include "engine/text/bpe.h"
#include "engine/text/utf8.h"

namespace sluice {
namespace {

using absl::string_view;

// One match of a Split, or the gap before one.
struct Part {
  TextRange range;
  bool is_match;
};

// `text` cut at both ends of every match.
void CutAtMatches(size_t text_size, absl::Span<const TextRange> matches, bool invert, std::vector<Part>* parts) {
  parts->clear();
  size_t done = 0;
  for (const TextRange& match : matches) {
    if (match.begin > done) parts->push_back({{done, match.begin}, invert});
    parts->push_back({match, !invert});
    done = match.end;
  }
  if (done < text_size) parts->push_back({{done, text_size}, invert});
}

// Joins parts with their neighbours, or drops them, as `behavior` says.
void Apply(SplitBehavior behavior, std::vector<Part>* parts) {
  std::vector<Part>& p = *parts;
  size_t kept = 0;  // p[0, kept) is the result
  bool previous_match = false;
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return;
    case SplitBehavior::kRemoved:
      p.erase(std::remove_if(p.begin(), p.end(), [](const Part& part) { return part.is_match; }), p.end());
      return;
    case SplitBehavior::kContiguous:
    case SplitBehavior::kMergedWithPrevious:
      for (const Part& part : std::vector<Part>(p)) {
        const bool joins =
            behavior == SplitBehavior::kContiguous ? part.is_match == previous_match : part.is_match && !previous_match;
        if (joins && kept > 0) {
          p[kept - 1].range.end = part.range.end;
        } else {
          p[kept++] = part;
        }
        previous_match = part.is_match;
      }
      p.resize(kept);
      return;
    case SplitBehavior::kMergedWithNext:
      std::reverse(p.begin(), p.end());
      for (const Part& part : std::vector<Part>(p)) {
        if (part.is_match && !previous_match && kept > 0) {
          p[kept - 1].range.begin = part.range.begin;
        } else {
          p[kept++] = part;
        }
        previous_match = part.is_match;
      }
      p.resize(kept);
      std::reverse(p.begin(), p.end());
      return;
  }
}

absl::Status SplitPieces(const Regex& pattern, const PreTokenizerStep& step, absl::Span<const string_view> pieces,
                         std::vector<string_view>* out) {
  Regex::Search search(pattern);
  std::vector<TextRange> matches;
  std::vector<Part> parts;
  for (const string_view piece : pieces) {
    matches.clear();
    SLUICE_RETURN_IF_ERROR(search.FindAll(piece, &matches));
    CutAtMatches(piece.size(), matches, step.invert, &parts);
    Apply(step.behavior, &parts);
    for (const Part& part : parts) {
      if (part.range.begin < part.range.end) {
        out->push_back(piece.substr(part.range.begin, part.range.end - part.range.begin));
      }
    }
  }
  return absl::OkStatus();
}

// The piece with its spaces marked, and with a mark before it if it needs one.
std::string Mark(string_view piece, const PreTokenizerStep& step, bool at_start) {
  std::string marked = absl::StrReplaceAll(piece, {{" ", step.mark}});
  const bool prepend = step.prepend == PrependScheme::kAlways || (step.prepend == PrependScheme::kFirst && at_start);
  if (prepend && string_view(marked).substr(0, step.mark.size()) != step.mark) marked.insert(0, step.mark);
  return marked;
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::Create(absl::Span<const PreTokenizerStep> steps) {
  PreTokenizer result;
  for (size_t i = 0; i < steps.size(); ++i) {
    Step& made = result.steps_.emplace_back(Step{steps[i], {}});
    if (steps[i].kind == PreTokenizerKind::kSplit) {
      SLUICE_ASSIGN_OR_RETURN(Regex pattern, Regex::Create(steps[i].pattern));
      made.pattern.push_back(std::move(pattern));
    } else if (steps[i].kind == PreTokenizerKind::kMetaspace) {
      const string_view mark = steps[i].mark;
      if (mark.empty() || FindInvalidUtf8(mark) != string_view::npos || Utf8Length(mark[0]) != mark.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("tokenizer pre_tokenizer[", i, "] mark: found ", Quote(mark), ", expected one character"));
      }
    }
  }
  return result;
}

absl::Status PreTokenizer::Split(string_view text, bool at_start, Words* out) const {
  out->words.clear();
  out->rewritten.clear();
  if (text.empty()) return absl::OkStatus();
  std::vector<string_view>& pieces = out->words;
  std::vector<string_view> next;
  bool spelled = false;
  pieces.push_back(text);
  for (const Step& step : steps_) {
    switch (step.spec.kind) {
      case PreTokenizerKind::kSplit: {
        next.clear();
        const char* begin = pieces.empty() ? nullptr : pieces[0].data();
        SLUICE_RETURN_IF_ERROR(SplitPieces(step.pattern[0], step.spec, pieces, &next));
        pieces.swap(next);
        at_start = at_start && !pieces.empty() && pieces[0].data() == begin;
        break;
      }
      case PreTokenizerKind::kPrefixSpace:
        for (string_view& piece : pieces) {
          if (piece[0] != ' ') piece = out->rewritten.emplace_back(absl::StrCat(" ", piece));
        }
        break;
      case PreTokenizerKind::kMetaspace:
        for (size_t i = 0; i < pieces.size(); ++i) {
          pieces[i] = out->rewritten.emplace_back(Mark(pieces[i], step.spec, at_start && i == 0));
        }
        break;
      case PreTokenizerKind::kByteSpelling:
        for (string_view& piece : pieces) {
          std::string& spelling = out->rewritten.emplace_back();
          for (const char c : piece) AppendUtf8(ByteLevelCharacter(static_cast<uint8_t>(c)), &spelling);
          piece = spelling;
        }
        spelled = true;
        break;
    }
  }
  for (size_t i = 0; spelled && i < pieces.size(); ++i) {
    std::string& bytes = out->rewritten.emplace_back();
    AppendByteLevelBytes(pieces[i], &bytes);
    pieces[i] = bytes;
  }
  return absl::OkStatus();
}

}  // namespace sluice
