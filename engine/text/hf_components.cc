#include "engine/text/hf_components.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
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

absl::Status ReadMetaspace(const HfField& metaspace, std::vector<PreTokenizerStep>* steps) {
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
  if (*byte_level) return pre_tokenizer["type"].Unsupported("nothing can follow ByteLevel");
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
  } else if (type == "ByteLevel") {
    SLUICE_ASSIGN_OR_RETURN(const bool prefix_space, pre_tokenizer["add_prefix_space"].BoolOr(true));
    SLUICE_ASSIGN_OR_RETURN(const bool use_regex, pre_tokenizer["use_regex"].BoolOr(true));
    if (prefix_space) steps->push_back({.kind = PreTokenizerKind::kPrefixSpace});
    if (use_regex) steps->push_back({.pattern = {std::string(kGpt2Pattern), true}});
    *byte_level = true;
  } else if (type == "Metaspace") {
    return ReadMetaspace(pre_tokenizer, steps);
  } else {
    return pre_tokenizer["type"].Unsupported("supported are Sequence, Split, Digits, ByteLevel and Metaspace");
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

absl::Status ReadPostProcessor(const HfField& processor, int depth, bool* has_template, HfTemplate* result) {
  if (processor.IsNull()) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const std::string type, processor["type"].String());
  if (type == "ByteLevel") return absl::OkStatus();
  if (type == "TemplateProcessing") {
    if (*has_template) return processor["type"].Unsupported("supported is one TemplateProcessing");
    *has_template = true;
    return ReadTemplate(processor, result);
  }
  if (type != "Sequence") {
    return processor["type"].Unsupported("supported are Sequence, ByteLevel and TemplateProcessing");
  }
  if (depth == kMaxSequenceDepth) return processor.Unsupported("Sequences in Sequences go that deep only");
  SLUICE_ASSIGN_OR_RETURN(const std::vector<HfField> parts, processor["processors"].List());
  for (const HfField& part : parts) {
    SLUICE_RETURN_IF_ERROR(ReadPostProcessor(part, depth + 1, has_template, result));
  }
  return absl::OkStatus();
}

// One part of a decoder's Sequence. `stage` is the place of the last one in the only order that is supported.
absl::Status ReadDecoderPart(const HfField& part, int* stage, DecoderSpec* spec) {
  enum Stage { kReplace, kByteFallback, kFuse, kStrip };
  SLUICE_ASSIGN_OR_RETURN(const std::string type, part["type"].String());
  const int this_stage = type == "Replace"        ? kReplace
                         : type == "ByteFallback" ? kByteFallback
                         : type == "Fuse"         ? kFuse
                         : type == "Strip"        ? kStrip
                                                  : -1;
  constexpr absl::string_view kOrder = "supported is the order Replace, ByteFallback, Fuse, Strip";
  if (this_stage < *stage || (this_stage == *stage && this_stage != kReplace)) return part["type"].Unsupported(kOrder);
  if (this_stage == kReplace) {
    SLUICE_ASSIGN_OR_RETURN(const TextPattern pattern, ReadPattern(part["pattern"]));
    if (pattern.is_regex) return part["pattern"].Unsupported("supported is a String");
    SLUICE_ASSIGN_OR_RETURN(std::string content, part["content"].String());
    spec->replace.emplace_back(pattern.text, std::move(content));
  } else if (this_stage == kByteFallback) {
    spec->byte_fallback = true;
  } else if (this_stage == kStrip) {
    if (*stage != kFuse) return part["type"].Unsupported("it must follow Fuse");
    SLUICE_ASSIGN_OR_RETURN(const std::string content, part["content"].String());
    if (content != " ") return part["content"].Unsupported("supported is one space");
    SLUICE_ASSIGN_OR_RETURN(const int64_t start, part["start"].Int(0, INT32_MAX));
    SLUICE_ASSIGN_OR_RETURN(const int64_t stop, part["stop"].Int(0, INT32_MAX));
    if (stop != 0) return part["stop"].Unsupported("supported is 0");
    spec->strip_left = static_cast<int>(start);
  }
  *stage = this_stage;
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
  bool has_template = false;
  return ReadPostProcessor(post_processor, 0, &has_template, result);
}

absl::StatusOr<DecoderSpec> ReadHfDecoder(const HfField& decoder) {
  DecoderSpec spec;
  if (decoder.IsNull()) {
    spec.space_between_tokens = true;
    return spec;
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string type, decoder["type"].String());
  if (type == "ByteLevel") {
    spec.byte_level = true;
  } else if (type == "Metaspace") {
    std::vector<PreTokenizerStep> steps;
    SLUICE_RETURN_IF_ERROR(ReadMetaspace(decoder, &steps));
    spec.replace.emplace_back(steps[0].mark, " ");
    spec.unmark_first = steps[0].prepend != PrependScheme::kNever;
  } else if (type == "Sequence") {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<HfField> parts, decoder["decoders"].List());
    if (parts.size() == 1 && !parts[0]["type"].IsNull()) {
      SLUICE_ASSIGN_OR_RETURN(const std::string only, parts[0]["type"].String());
      if (only == "ByteLevel" || only == "Metaspace") return ReadHfDecoder(parts[0]);
    }
    int stage = 0;
    for (const HfField& part : parts) SLUICE_RETURN_IF_ERROR(ReadDecoderPart(part, &stage, &spec));
  } else if (type == "Replace" || type == "ByteFallback" || type == "Fuse") {
    int stage = 0;
    SLUICE_RETURN_IF_ERROR(ReadDecoderPart(decoder, &stage, &spec));
  } else {
    return decoder["type"].Unsupported(
        "supported are ByteLevel, Metaspace and a Sequence of Replace, ByteFallback, Fuse and Strip");
  }
  return spec;
}

}  // namespace sluice
