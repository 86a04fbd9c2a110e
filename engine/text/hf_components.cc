#include "engine/text/hf_components.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/token_decoder.h"
#include "engine/text/recipes.h"

namespace sluice {
namespace {

constexpr int kMaxSequenceDepth = 8;

// {"String": "x"} or {"Regex": "x+"}.
absl::StatusOr<TextPattern> ReadPattern(const HfField& pattern) {
  const bool is_regex = !pattern["Regex"].IsNull();
  if (!is_regex && pattern["String"].IsNull()) return pattern.Wrong("a String or a Regex");
  SLUICE_ASSIGN_OR_RETURN(std::string text, pattern[is_regex ? "Regex" : "String"].String());
  return TextPattern{std::move(text), is_regex};
}

absl::StatusOr<SplitBehavior> ReadBehavior(const HfField& behavior) {
  constexpr std::pair<absl::string_view, SplitBehavior> kNames[] = {
      {"Isolated", SplitBehavior::kIsolated},
      {"Removed", SplitBehavior::kRemoved},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  };
  SLUICE_ASSIGN_OR_RETURN(const std::string found, behavior.String());
  for (const auto& [name, value] : kNames) {
    if (name == found) return value;
  }
  return behavior.Unsupported("supported are Isolated, Removed, MergedWithPrevious, MergedWithNext and Contiguous");
}

absl::Status ReadNormalizer(const HfField& normalizer, int depth, std::vector<NormalizerStep>* steps) {
  if (normalizer.IsNull()) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const std::string type, normalizer["type"].String());
  if (type == "Sequence") {
    if (depth == kMaxSequenceDepth) return normalizer.Unsupported("Sequences in Sequences go that deep only");
    SLUICE_ASSIGN_OR_RETURN(const std::vector<HfField> parts, normalizer["normalizers"].List());
    for (const HfField& part : parts) SLUICE_RETURN_IF_ERROR(ReadNormalizer(part, depth + 1, steps));
    return absl::OkStatus();
  }
  NormalizerStep step;
  if (type == "NFC") {
    step.kind = NormalizerKind::kNfc;
  } else if (type == "NFD") {
    step.kind = NormalizerKind::kNfd;
  } else if (type == "NFKC") {
    step.kind = NormalizerKind::kNfkc;
  } else if (type == "NFKD") {
    step.kind = NormalizerKind::kNfkd;
  } else if (type == "Prepend") {
    step.kind = NormalizerKind::kPrepend;
    SLUICE_ASSIGN_OR_RETURN(step.text, normalizer["prepend"].String());
  } else if (type == "Replace") {
    step.kind = NormalizerKind::kReplace;
    SLUICE_ASSIGN_OR_RETURN(step.pattern, ReadPattern(normalizer["pattern"]));
    SLUICE_ASSIGN_OR_RETURN(step.text, normalizer["content"].String());
  } else {
    return normalizer["type"].Unsupported("supported are Sequence, NFC, NFD, NFKC, NFKD, Prepend and Replace");
  }
  steps->push_back(std::move(step));
  return absl::OkStatus();
}

// Without its split, which is a step of its own.
absl::StatusOr<PreTokenizerStep> ReadMetaspaceStep(const HfField& metaspace) {
  PreTokenizerStep step{.kind = PreTokenizerKind::kMetaspace};
  SLUICE_ASSIGN_OR_RETURN(step.mark, metaspace["replacement"].String());
  // Before there was a prepend_scheme, add_prefix_space told "always" from "never".
  SLUICE_ASSIGN_OR_RETURN(const bool add_prefix_space, metaspace["add_prefix_space"].BoolOr(true));
  step.prepend = add_prefix_space ? PrependScheme::kAlways : PrependScheme::kNever;
  if (const HfField scheme = metaspace["prepend_scheme"]; !scheme.IsNull() && add_prefix_space) {
    SLUICE_ASSIGN_OR_RETURN(const std::string name, scheme.String());
    if (name != "always" && name != "first" && name != "never") return scheme.Wrong("always, first or never");
    step.prepend = name == "always"  ? PrependScheme::kAlways
                   : name == "first" ? PrependScheme::kFirst
                                     : PrependScheme::kNever;
  }
  return step;
}

absl::Status ReadMetaspace(const HfField& metaspace, std::vector<PreTokenizerStep>* steps) {
  SLUICE_ASSIGN_OR_RETURN(PreTokenizerStep step, ReadMetaspaceStep(metaspace));
  SLUICE_ASSIGN_OR_RETURN(const bool split, metaspace["split"].BoolOr(true));
  const std::string mark = step.mark;
  steps->push_back(std::move(step));
  if (split) steps->push_back({.pattern = {mark, false}, .behavior = SplitBehavior::kMergedWithNext});
  return absl::OkStatus();
}

absl::Status ReadPreTokenizer(const HfField& pre_tokenizer, int depth, std::vector<PreTokenizerStep>* steps,
                              bool* byte_level) {
  if (pre_tokenizer.IsNull()) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const std::string type, pre_tokenizer["type"].String());
  if (type == "Sequence") {
    if (depth == kMaxSequenceDepth) return pre_tokenizer.Unsupported("Sequences in Sequences go that deep only");
    SLUICE_ASSIGN_OR_RETURN(const std::vector<HfField> parts, pre_tokenizer["pretokenizers"].List());
    for (const HfField& part : parts) SLUICE_RETURN_IF_ERROR(ReadPreTokenizer(part, depth + 1, steps, byte_level));
    return absl::OkStatus();
  }
  // What follows ByteLevel works on its spelling of the bytes.
  if (*byte_level) {
    if (type == "ByteLevel" || type == "Metaspace") {
      return pre_tokenizer["type"].Unsupported(
          "after ByteLevel supported are Split, Digits, Punctuation, "
          "WhitespaceSplit and CharDelimiterSplit");
    }
    const auto spells = [](const PreTokenizerStep& step) { return step.kind == PreTokenizerKind::kByteSpelling; };
    if (std::none_of(steps->begin(), steps->end(), spells)) steps->push_back({.kind = PreTokenizerKind::kByteSpelling});
  }
  if (type == "Split") {
    PreTokenizerStep step;
    SLUICE_ASSIGN_OR_RETURN(step.pattern, ReadPattern(pre_tokenizer["pattern"]));
    SLUICE_ASSIGN_OR_RETURN(step.behavior, ReadBehavior(pre_tokenizer["behavior"]));
    SLUICE_ASSIGN_OR_RETURN(step.invert, pre_tokenizer["invert"].BoolOr(false));
    steps->push_back(std::move(step));
  } else if (type == "Digits") {
    SLUICE_ASSIGN_OR_RETURN(const bool individual, pre_tokenizer["individual_digits"].BoolOr(false));
    steps->push_back({.pattern = {std::string(kDigitPattern), true},
                      .behavior = individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
  } else if (type == "Punctuation") {
    PreTokenizerStep step{.pattern = {std::string(kPunctuationPattern), true}};
    if (!pre_tokenizer["behavior"].IsNull()) {
      SLUICE_ASSIGN_OR_RETURN(step.behavior, ReadBehavior(pre_tokenizer["behavior"]));
    }
    steps->push_back(std::move(step));
  } else if (type == "WhitespaceSplit") {
    steps->push_back({.pattern = {std::string(kWhiteSpacePattern), true}, .behavior = SplitBehavior::kRemoved});
  } else if (type == "CharDelimiterSplit") {
    PreTokenizerStep step{.behavior = SplitBehavior::kRemoved};
    SLUICE_ASSIGN_OR_RETURN(step.pattern.text, pre_tokenizer["delimiter"].String());
    steps->push_back(std::move(step));
  } else if (type == "ByteLevel") {
    SLUICE_ASSIGN_OR_RETURN(const bool prefix_space, pre_tokenizer["add_prefix_space"].BoolOr(true));
    SLUICE_ASSIGN_OR_RETURN(const bool use_regex, pre_tokenizer["use_regex"].BoolOr(true));
    if (prefix_space) steps->push_back({.kind = PreTokenizerKind::kPrefixSpace});
    if (use_regex) steps->push_back({.pattern = {std::string(kGpt2Pattern), true}});
    *byte_level = true;
  } else if (type == "Metaspace") {
    return ReadMetaspace(pre_tokenizer, steps);
  } else {
    return pre_tokenizer["type"].Unsupported(
        "supported are Sequence, Split, Digits, Punctuation, WhitespaceSplit, CharDelimiterSplit, ByteLevel and "
        "Metaspace");
  }
  return absl::OkStatus();
}

absl::Status ReadTemplate(const HfField& processor, HfTemplate* result) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<HfField> pieces, processor["single"].List());
  bool after_text = false;
  for (const HfField& piece : pieces) {
    if (const HfField sequence = piece["Sequence"]; !sequence.IsNull()) {
      SLUICE_ASSIGN_OR_RETURN(const std::string id, sequence["id"].String());
      if (id != "A" || after_text) return piece.Unsupported("supported is one Sequence A");
      after_text = true;
      continue;
    }
    SLUICE_ASSIGN_OR_RETURN(const std::string name, piece["SpecialToken"]["id"].String());
    const HfField token = processor["special_tokens"][name];
    SLUICE_ASSIGN_OR_RETURN(const std::vector<HfField> ids, token["ids"].List());
    if (ids.empty()) return token.Wrong(absl::StrCat("ids for the token of ", piece.path()));
    for (const HfField& field : ids) {
      SLUICE_ASSIGN_OR_RETURN(const int64_t id, field.Int(0, INT32_MAX));
      (after_text ? result->after : result->before).push_back(static_cast<int32_t>(id));
    }
  }
  if (!after_text) return processor["single"].Wrong("a list with a Sequence A");
  return absl::OkStatus();
}

// RobertaProcessing and BertProcessing: ["</s>", 2] as `sep` and ["<s>", 0] as `cls`.
absl::Status ReadNamedPair(const HfField& pair, std::vector<int32_t>* ids) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<HfField> parts, pair.List());
  if (parts.size() != 2) return pair.Wrong("a token and its id");
  SLUICE_ASSIGN_OR_RETURN(const int64_t id, parts[1].Int(0, INT32_MAX));
  ids->push_back(static_cast<int32_t>(id));
  return absl::OkStatus();
}

absl::Status ReadPostProcessor(const HfField& processor, int depth, HfTemplate* result) {
  if (processor.IsNull()) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const std::string type, processor["type"].String());
  if (type == "ByteLevel") return absl::OkStatus();
  if (type == "Sequence") {
    if (depth == kMaxSequenceDepth) return processor.Unsupported("Sequences in Sequences go that deep only");
    SLUICE_ASSIGN_OR_RETURN(const std::vector<HfField> parts, processor["processors"].List());
    for (const HfField& part : parts) SLUICE_RETURN_IF_ERROR(ReadPostProcessor(part, depth + 1, result));
    return absl::OkStatus();
  }
  if (!result->before.empty() || !result->after.empty()) {
    return processor["type"].Unsupported("supported is one processor that adds tokens");
  }
  if (type == "TemplateProcessing") return ReadTemplate(processor, result);
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    SLUICE_RETURN_IF_ERROR(ReadNamedPair(processor["cls"], &result->before));
    return ReadNamedPair(processor["sep"], &result->after);
  }
  return processor["type"].Unsupported(
      "supported are Sequence, ByteLevel, TemplateProcessing, RobertaProcessing and BertProcessing");
}

absl::Status ReadDecoder(const HfField& decoder, int depth, DecoderSpec* spec) {
  SLUICE_ASSIGN_OR_RETURN(const std::string type, decoder["type"].String());
  if (type == "Sequence") {
    if (depth == kMaxSequenceDepth) return decoder.Unsupported("Sequences in Sequences go that deep only");
    SLUICE_ASSIGN_OR_RETURN(const std::vector<HfField> parts, decoder["decoders"].List());
    for (const HfField& part : parts) SLUICE_RETURN_IF_ERROR(ReadDecoder(part, depth + 1, spec));
    return absl::OkStatus();
  }
  DecoderStep step;
  if (type == "ByteLevel") {
    step.kind = DecoderKind::kByteLevel;
  } else if (type == "ByteFallback") {
    step.kind = DecoderKind::kByteFallback;
  } else if (type == "Fuse") {
    step.kind = DecoderKind::kFuse;
  } else if (type == "Replace") {
    step.kind = DecoderKind::kReplace;
    SLUICE_ASSIGN_OR_RETURN(step.pattern, ReadPattern(decoder["pattern"]));
    SLUICE_ASSIGN_OR_RETURN(step.text, decoder["content"].String());
  } else if (type == "Strip") {
    step.kind = DecoderKind::kStrip;
    SLUICE_ASSIGN_OR_RETURN(step.text, decoder["content"].String());
    SLUICE_ASSIGN_OR_RETURN(const int64_t start, decoder["start"].Int(0, INT32_MAX));
    SLUICE_ASSIGN_OR_RETURN(const int64_t stop, decoder["stop"].Int(0, INT32_MAX));
    step.start = static_cast<int32_t>(start);
    step.stop = static_cast<int32_t>(stop);
  } else if (type == "Metaspace") {
    step.kind = DecoderKind::kMetaspace;
    SLUICE_ASSIGN_OR_RETURN(const PreTokenizerStep metaspace, ReadMetaspaceStep(decoder));
    step.pattern.text = metaspace.mark;
    step.prepend = metaspace.prepend;
    step.text.push_back(' ');
  } else {
    return decoder["type"].Unsupported(
        "supported are Sequence, ByteLevel, ByteFallback, Fuse, Replace, Strip and Metaspace");
  }
  spec->steps.push_back(std::move(step));
  // Checked after every step, so that an error names the one at fault.
  const absl::Status status = TokenDecoder::Create(*spec).status();
  if (absl::IsUnimplemented(status)) return decoder["type"].Unsupported(status.message());
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat(decoder.path(), ": ", status.message()));
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadHfNormalizer(const HfField& normalizer, std::vector<NormalizerStep>* steps) {
  return ReadNormalizer(normalizer, 0, steps);
}

absl::Status ReadHfPreTokenizer(const HfField& pre_tokenizer, std::vector<PreTokenizerStep>* steps, bool* byte_level) {
  *byte_level = false;
  return ReadPreTokenizer(pre_tokenizer, 0, steps, byte_level);
}

absl::Status ReadHfPostProcessor(const HfField& post_processor, HfTemplate* result) {
  return ReadPostProcessor(post_processor, 0, result);
}

absl::StatusOr<DecoderSpec> ReadHfDecoder(const HfField& decoder) {
  DecoderSpec spec;
  spec.space_between_tokens = decoder.IsNull();
  if (!decoder.IsNull()) SLUICE_RETURN_IF_ERROR(ReadDecoder(decoder, 0, &spec));
  return spec;
}

}  // namespace sluice
