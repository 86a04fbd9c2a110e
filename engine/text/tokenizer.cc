#include "engine/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/detokenizer.h"
#include "engine/text/utf8.h"

namespace sluice {
namespace {

// Leaves room for symbols and their neighbours as 32-bit numbers, also where every space becomes three bytes.
constexpr size_t kMaxTextBytes = size_t{256} << 20;

// How model families spell "I have finished". A GGUF file names one such token at most; models use several.
constexpr absl::string_view kEndOfGenerationTexts[] = {
    "</s>",
    "<eos>",
    "[EOS]",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eos|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eot|>",
    "<EOT>",
    "[EOT]",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|end_of_turn|>",
    "<turn|>",
    "<|return|>",
    "<|call|>",
    "<|end|>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
};

absl::Status CheckSpec(const TokenizerSpec& spec) {
  if (spec.tokens.empty()) return absl::InvalidArgumentError("tokenizer tokens: found none, expected at least one");
  if (spec.tokens.size() > static_cast<size_t>(INT32_MAX)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer tokens: found ", spec.tokens.size(), ", expected fewer than 2^31"));
  }
  if (!spec.types.empty() && spec.types.size() != spec.tokens.size()) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer types: found ", spec.types.size(),
                                                   ", expected one for each of ", spec.tokens.size(), " tokens"));
  }
  for (size_t i = 0; i < spec.types.size(); ++i) {
    const int32_t type = static_cast<int32_t>(spec.types[i]);
    if (type < 1 || type > 6) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer types[", i, "]: found ", type, ", expected 1 to 6"));
    }
  }
  const std::pair<absl::string_view, std::optional<int32_t>> ids[] = {{"bos_id", spec.bos_id}, {"eos_id", spec.eos_id},
                                                                      {"eot_id", spec.eot_id}, {"eom_id", spec.eom_id},
                                                                      {"unk_id", spec.unk_id}, {"pad_id", spec.pad_id}};
  for (const auto& [name, id] : ids) {
    if (id.has_value() && (*id < 0 || static_cast<size_t>(*id) >= spec.tokens.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer ", name, ": found ", *id, ", expected an id below ", spec.tokens.size()));
    }
  }
  if (spec.add_bos && !spec.bos_id.has_value()) {
    return absl::InvalidArgumentError("tokenizer add_bos: found true without a bos_id");
  }
  if (spec.add_eos && !spec.eos_id.has_value()) {
    return absl::InvalidArgumentError("tokenizer add_eos: found true without an eos_id");
  }
  return absl::OkStatus();
}

bool IsAdded(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUserDefined || type == TokenType::kUnknown;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  SLUICE_RETURN_IF_ERROR(CheckSpec(spec));
  if (spec.types.empty()) spec.types.assign(spec.tokens.size(), TokenType::kNormal);

  AddedTokens added;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (IsAdded(spec.types[i])) added.Add(spec.tokens[i], static_cast<int32_t>(i));
  }

  std::unique_ptr<Tokenizer> tokenizer;
  if (spec.model == TokenizerModel::kByteLevelBpe) {
    SLUICE_ASSIGN_OR_RETURN(const PreTokenizerRecipe* recipe, FindPreTokenizerRecipe(spec.pre));
    SLUICE_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::Create(recipe->patterns));
    SLUICE_ASSIGN_OR_RETURN(ByteLevelBpe bpe, ByteLevelBpe::Create(spec, recipe->ignore_merges));
    tokenizer.reset(new Tokenizer(ByteLevel{std::move(pre_tokenizer), std::move(bpe)}, std::move(added)));
  } else {
    SLUICE_ASSIGN_OR_RETURN(SentencePieceBpe bpe, SentencePieceBpe::Create(spec));
    tokenizer.reset(new Tokenizer(std::move(bpe), std::move(added)));
    tokenizer->strips_leading_space_ = spec.add_space_prefix;
  }
  tokenizer->bos_id_ = spec.bos_id;
  tokenizer->eos_id_ = spec.eos_id;
  tokenizer->eot_id_ = spec.eot_id;
  tokenizer->unk_id_ = spec.unk_id;
  tokenizer->pad_id_ = spec.pad_id;
  tokenizer->add_bos_ = spec.add_bos;
  tokenizer->add_eos_ = spec.add_eos;
  tokenizer->FindEndOfGeneration(spec);
  tokenizer->tokens_ = std::move(spec.tokens);
  tokenizer->types_ = std::move(spec.types);
  tokenizer->FillTokenBytes();
  return tokenizer;
}

void Tokenizer::FindEndOfGeneration(const TokenizerSpec& spec) {
  std::vector<int32_t>& ids = end_of_generation_ids_;
  for (const std::optional<int32_t>& id : {spec.eos_id, spec.eot_id, spec.eom_id}) {
    if (id.has_value()) ids.push_back(*id);
  }
  // In the harmony format <|end|> closes one message and the model goes on; there <|return|> closes the answer.
  const auto is_return = [](absl::string_view token) { return token == "<|return|>"; };
  const bool harmony = std::any_of(spec.tokens.begin(), spec.tokens.end(), is_return);
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.types[i] != TokenType::kControl && spec.types[i] != TokenType::kUserDefined) continue;
    if (harmony && spec.tokens[i] == "<|end|>") continue;
    const auto* end = std::end(kEndOfGenerationTexts);
    if (std::find(std::begin(kEndOfGenerationTexts), end, spec.tokens[i]) != end)
      ids.push_back(static_cast<int32_t>(i));
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

void Tokenizer::FillTokenBytes() {
  const bool byte_level = std::holds_alternative<ByteLevel>(model_);
  bytes_offsets_.reserve(tokens_.size() + 1);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    bytes_offsets_.push_back(bytes_.size());
    if (byte_level) {
      AppendByteLevelBytes(tokens_[i], &bytes_);
    } else {
      AppendSentencePieceBytes(tokens_[i], types_[i], &bytes_);
    }
  }
  bytes_offsets_.push_back(bytes_.size());
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(absl::string_view text, const EncodeOptions& options) const {
  const TextSegment segment{text, true};
  return Encode(absl::MakeConstSpan(&segment, 1), options);
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(absl::Span<const TextSegment> segments,
                                                       const EncodeOptions& options) const {
  std::string joined;
  if (segments.size() > 1) {
    for (const TextSegment& segment : segments) absl::StrAppend(&joined, segment.text);
  }
  const absl::string_view text = segments.size() == 1 ? segments[0].text : absl::string_view(joined);
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("text: found ", text.size(), " bytes, expected at most ", kMaxTextBytes));
  }
  if (const size_t bad = FindInvalidUtf8(text); bad != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("text: byte ", bad, " is not UTF-8"));
  }

  std::vector<int32_t> ids;
  MergeScratch scratch;
  if (options.add_special && add_bos_) ids.push_back(*bos_id_);
  size_t encoded = 0;  // ids cover text[0, encoded)
  size_t run_begin = 0;
  for (size_t s = 0; s < segments.size() && options.parse_special;) {
    // Segments of one kind, side by side, are one run.
    const bool parse = segments[s].parse_special;
    size_t run_end = run_begin;
    for (; s < segments.size() && segments[s].parse_special == parse; ++s) run_end += segments[s].text.size();
    if (parse) {
      const absl::string_view until_run_end = text.substr(0, run_end);
      for (AddedTokens::Match m = added_tokens_.Find(until_run_end, run_begin); m.id >= 0;
           m = added_tokens_.Find(until_run_end, encoded)) {
        SLUICE_RETURN_IF_ERROR(EncodeStretch(text.substr(encoded, m.begin - encoded), &scratch, &ids));
        ids.push_back(m.id);
        encoded = m.end;
      }
    }
    run_begin = run_end;
  }
  SLUICE_RETURN_IF_ERROR(EncodeStretch(text.substr(encoded), &scratch, &ids));
  if (options.add_special && add_eos_) ids.push_back(*eos_id_);
  return ids;
}

absl::Status Tokenizer::EncodeStretch(absl::string_view text, MergeScratch* scratch, std::vector<int32_t>* ids) const {
  if (const auto* sentence_piece = std::get_if<SentencePieceBpe>(&model_)) {
    sentence_piece->Encode(text, scratch, ids);
    return absl::OkStatus();
  }
  const ByteLevel& byte_level = std::get<ByteLevel>(model_);
  std::vector<absl::string_view> words;
  SLUICE_RETURN_IF_ERROR(byte_level.pre_tokenizer.Split(text, &words));
  for (const absl::string_view word : words) byte_level.bpe.Encode(word, scratch, ids);
  return absl::OkStatus();
}

std::string Tokenizer::Decode(absl::Span<const int32_t> ids, bool skip_special) const {
  Detokenizer detokenizer(this, skip_special);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.Push(id);
  return text + detokenizer.Flush();
}

absl::string_view Tokenizer::TokenText(int32_t id) const { return Contains(id) ? tokens_[id] : absl::string_view(); }

absl::string_view Tokenizer::TokenBytes(int32_t id) const {
  if (!Contains(id)) return absl::string_view();
  return absl::string_view(bytes_).substr(bytes_offsets_[id], bytes_offsets_[id + 1] - bytes_offsets_[id]);
}

std::optional<int32_t> Tokenizer::FindToken(absl::string_view text) const {
  const auto it = std::find(tokens_.begin(), tokens_.end(), text);
  if (it == tokens_.end()) return std::nullopt;
  return static_cast<int32_t>(it - tokens_.begin());
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return Contains(id) && (types_[id] == TokenType::kControl || types_[id] == TokenType::kUnknown);
}

bool Tokenizer::IsEndOfGeneration(int32_t id) const {
  return std::binary_search(end_of_generation_ids_.begin(), end_of_generation_ids_.end(), id);
}

}  // namespace sluice
