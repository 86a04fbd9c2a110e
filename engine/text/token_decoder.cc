#include "engine/text/token_decoder.h"

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

constexpr size_t kMaxTextBytes = 64;      // that a step puts in place of a match
constexpr int32_t kMaxStrip = 1'000'000;  // characters that a Strip drops

bool IsOneCharacter(string_view text) {
  return !text.empty() && FindInvalidUtf8(text) == string_view::npos && Utf8Length(text[0]) == text.size();
}

// At most `count` times `character` from the beginning of *text; how often it was there.
int StripLeft(string_view character, int count, string_view* text) {
  int dropped = 0;
  while (dropped < count && text->substr(0, character.size()) == character) {
    text->remove_prefix(character.size());
    ++dropped;
  }
  return dropped;
}

// The length of the end of `text` that is at most `count` times `character`.
size_t RepeatedEnd(string_view character, int count, string_view text) {
  size_t length = 0;
  for (; count > 0 && length + character.size() <= text.size(); --count) {
    if (text.substr(text.size() - length - character.size(), character.size()) != character) break;
    length += character.size();
  }
  return length;
}

// Of a piece or of a whole text alike: Replace and Metaspace.
std::string Rewrite(const DecoderStep& step, string_view text, bool first) {
  const bool unmark = step.kind == DecoderKind::kMetaspace && first && step.prepend != PrependScheme::kNever;
  return absl::StrReplaceAll(text, {{step.pattern.text, unmark ? "" : step.text}});
}

absl::Status CheckStep(const DecoderStep& step) {
  if (step.kind == DecoderKind::kReplace || step.kind == DecoderKind::kMetaspace) {
    if (step.pattern.text.empty() || step.text.size() > kMaxTextBytes) {
      return absl::InvalidArgumentError(absl::StrCat("found ", Quote(step.pattern.text), " by ", step.text.size(),
                                                     " bytes, expected a text by at most ", kMaxTextBytes));
    }
  }
  if (step.kind == DecoderKind::kMetaspace && !IsOneCharacter(step.pattern.text)) {
    return absl::InvalidArgumentError(
        absl::StrCat("found the mark ", Quote(step.pattern.text), ", expected one character"));
  }
  if (step.kind == DecoderKind::kStrip) {
    if (!IsOneCharacter(step.text) || step.start < 0 || step.start > kMaxStrip || step.stop < 0 ||
        step.stop > kMaxStrip) {
      return absl::InvalidArgumentError(absl::StrCat("found ", step.start, " and ", step.stop, " times ",
                                                     Quote(step.text), ", expected one character, 0 to ", kMaxStrip,
                                                     " times"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenDecoder> TokenDecoder::Create(const DecoderSpec& spec) {
  TokenDecoder decoder;
  decoder.space_between_tokens_ = spec.space_between_tokens;
  std::vector<DecoderStep>* stage = &decoder.token_steps_;
  for (const DecoderStep& step : spec.steps) {
    SLUICE_RETURN_IF_ERROR(CheckStep(step));
    const bool of_tokens = stage == &decoder.token_steps_, of_text = stage == &decoder.text_steps_;
    switch (step.kind) {
      case DecoderKind::kByteLevel:
        if (!of_tokens) return absl::UnimplementedError("ByteLevel must come before ByteFallback, Metaspace and Fuse");
        stage->push_back(step);
        stage = &decoder.text_steps_;
        break;
      case DecoderKind::kByteFallback:
        if (!of_tokens) return absl::UnimplementedError("ByteFallback must come before Metaspace, Fuse and ByteLevel");
        decoder.joins_bytes_ = true;
        stage = &decoder.piece_steps_;
        break;
      case DecoderKind::kFuse:
        stage = &decoder.text_steps_;
        break;
      case DecoderKind::kReplace:
        if (step.pattern.is_regex && !of_tokens) {
          return absl::UnimplementedError("a Replace of a Regex must come first");
        }
        if (of_text && !IsOneCharacter(step.pattern.text)) {
          return absl::UnimplementedError("after Fuse or ByteLevel, a Replace must be of one character");
        }
        if (of_tokens) {
          SLUICE_ASSIGN_OR_RETURN(Regex pattern, Regex::Create(step.pattern));
          decoder.patterns_.push_back(std::move(pattern));
        }
        stage->push_back(step);
        break;
      case DecoderKind::kStrip:
        stage->push_back(step);
        break;
      case DecoderKind::kMetaspace:
        if (of_tokens) stage = &decoder.piece_steps_;
        stage->push_back(step);
        break;
    }
  }
  return decoder;
}

absl::StatusOr<std::string> TokenDecoder::Token(string_view spelling) const {
  std::string text(spelling);
  size_t pattern = 0;
  for (const DecoderStep& step : token_steps_) {
    std::string next;
    if (step.kind == DecoderKind::kByteLevel) {
      AppendByteLevelBytes(text, &next);
    } else if (step.kind == DecoderKind::kStrip) {
      string_view rest = text;
      StripLeft(step.text, step.start, &rest);
      rest.remove_suffix(RepeatedEnd(step.text, step.stop, rest));
      next = std::string(rest);
    } else {
      const Regex& regex = patterns_[pattern++];
      if (FindInvalidUtf8(text) != string_view::npos) continue;  // no text: nothing matches in it
      std::vector<TextRange> matches;
      SLUICE_RETURN_IF_ERROR(Regex::Search(regex).FindAll(text, &matches));
      size_t done = 0;
      for (const TextRange& match : matches) {
        absl::StrAppend(&next, string_view(text).substr(done, match.begin - done), step.text);
        done = match.end;
      }
      absl::StrAppend(&next, string_view(text).substr(done));
    }
    text = std::move(next);
  }
  return text;
}

std::string TokenDecoder::Piece(string_view piece, bool first) const {
  std::string text(piece);
  for (const DecoderStep& step : piece_steps_) {
    if (step.kind == DecoderKind::kStrip) {
      string_view rest = text;
      StripLeft(step.text, step.start, &rest);
      rest.remove_suffix(RepeatedEnd(step.text, step.stop, rest));
      text = std::string(rest);
    } else {
      text = Rewrite(step, text, first);
    }
  }
  return text;
}

TokenDecoder::Text::Text(const TokenDecoder& decoder) : steps_(&decoder.text_steps_), states_(decoder.text_steps_.size()) {
  for (size_t i = 0; i < states_.size(); ++i) states_[i].drop = (*steps_)[i].start;
}

std::string TokenDecoder::Text::Push(string_view text) {
  std::string out(text);
  for (size_t i = 0; i < states_.size() && !out.empty(); ++i) {
    const DecoderStep& step = (*steps_)[i];
    State& state = states_[i];
    if (step.kind != DecoderKind::kStrip) {
      // After Fuse the whole text is one piece, the first.
      out = Rewrite(step, out, true);
      continue;
    }
    string_view rest = out;
    state.drop -= StripLeft(step.text, state.drop, &rest);
    if (!rest.empty()) state.drop = 0;
    out = absl::StrCat(state.held, rest);
    const size_t end = RepeatedEnd(step.text, step.stop, out);
    state.held = out.substr(out.size() - end);
    out.resize(out.size() - end);
  }
  return out;
}

void TokenDecoder::Text::Continue(bool begun) {
  for (State& state : states_) {
    state.held.clear();
    if (begun) state.drop = 0;
  }
}

}  // namespace sluice
