#include "engine/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/status_macros.h"
#include "engine/text/detokenizer.h"
#include "engine/text/recipes.h"
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

// The same of what begins a turn, in vocabularies that do not call it control.
constexpr absl::string_view kTurnTexts[] = {"<start_of_turn>", "<|turn>",         "[INST]",
                                            "[/INST]",         "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"};

template <size_t N>
bool IsOneOf(const absl::string_view (&texts)[N], absl::string_view text) {
  return std::find(std::begin(texts), std::end(texts), text) != std::end(texts);
}

// <|user|>, <｜User｜>: llama.cpp's converter goes by the same.
bool IsSpelledLikeControl(absl::string_view text) {
  const auto between = [text](absl::string_view open, absl::string_view close) {
    return text.size() > open.size() + close.size() && text.substr(0, open.size()) == open &&
           text.substr(text.size() - close.size()) == close;
  };
  return between("<|", "|>") || between("<｜", "｜>") || between("[|", "|]");
}

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
  for (const AddedTokenOptions& options : spec.added) {
    if (options.id < 0 || static_cast<size_t>(options.id) >= spec.tokens.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer added: found id ", options.id, ", expected an id below ", spec.tokens.size()));
    }
  }
  for (const std::vector<int32_t>* list : {&spec.prefix_ids, &spec.suffix_ids}) {
    for (const int32_t id : *list) {
      if (id >= 0 && static_cast<size_t>(id) < spec.tokens.size()) continue;
      return absl::InvalidArgumentError(absl::StrCat("tokenizer ",
                                                     list == &spec.prefix_ids ? "prefix_ids" : "suffix_ids", ": found ",
                                                     id, ", expected an id below ", spec.tokens.size()));
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

// Of a model whose file names none.
DecoderSpec UsualDecoder(const TokenizerSpec& spec) {
  DecoderSpec decoder;
  if (spec.model == TokenizerModel::kByteLevelBpe) decoder.steps.push_back({.kind = DecoderKind::kByteLevel});
  if (spec.model == TokenizerModel::kSentencePieceBpe) {
    decoder.steps = {{.kind = DecoderKind::kByteFallback}, {.kind = DecoderKind::kFuse}};
    if (spec.add_space_prefix) decoder.steps.push_back({.kind = DecoderKind::kStrip, .text = " ", .start = 1});
  }
  return decoder;
}

bool IsAdded(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUserDefined || type == TokenType::kUnknown;
}

// For each byte of `range` whether it lies in one of the `parsed` ranges, as Normalizer::Run wants it.
// One range after the other is '\1' and '\2': where two touch, their border stays.
std::string TrustedBytes(TextRange range, absl::Span<const TextRange> parsed) {
  std::string trusted(range.end - range.begin, '\0');
  char mark = '\1';
  for (const TextRange& p : parsed) {
    const size_t begin = std::max(p.begin, range.begin), end = std::min(p.end, range.end);
    if (begin < end) std::fill_n(trusted.begin() + (begin - range.begin), end - begin, mark);
    mark = mark == '\1' ? '\2' : '\1';
  }
  return trusted;
}

std::vector<TextRange> TrustedRanges(absl::string_view trusted) {
  std::vector<TextRange> ranges;
  for (size_t begin = 0, end; begin < trusted.size(); begin = end) {
    end = std::min(trusted.find_first_not_of(trusted[begin], begin), trusted.size());
    if (trusted[begin] != '\0') ranges.push_back({begin, end});
  }
  return ranges;
}

}  // namespace

struct Tokenizer::Encoding {
  MergeScratch scratch;
  PreTokenizer::Words words;
  std::vector<int32_t> ids;
};

absl::StatusOr<Tokenizer::Model> Tokenizer::CreateModel(const TokenizerSpec& spec) {
  switch (spec.model) {
    case TokenizerModel::kByteLevelBpe:
      return ByteLevelBpe::Create(spec);
    case TokenizerModel::kSentencePieceBpe:
      return SentencePieceBpe::Create(spec);
    case TokenizerModel::kCharacterBpe:
      return CharacterBpe::Create(spec);
    case TokenizerModel::kRankedBpe:
      return RankedBpe::Create(spec);
  }
  return absl::InvalidArgumentError(absl::StrCat("tokenizer model: found ", static_cast<int>(spec.model)));
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  SLUICE_RETURN_IF_ERROR(CheckSpec(spec));
  if (spec.types.empty()) spec.types.assign(spec.tokens.size(), TokenType::kNormal);
  if (spec.pre.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe(*spec.pre));
    spec.normalizer = recipe->normalizer;
    spec.pre_tokenizer = recipe->pre_tokenizer;
    spec.ignore_merges = recipe->ignore_merges;
  }
  SLUICE_ASSIGN_OR_RETURN(Model model, CreateModel(spec));
  SLUICE_ASSIGN_OR_RETURN(Normalizer normalizer, Normalizer::Create(spec.normalizer));
  SLUICE_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::Create(spec.pre_tokenizer));
  std::unique_ptr<Tokenizer> tokenizer(
      new Tokenizer(std::move(model), std::move(normalizer), std::move(pre_tokenizer)));
  tokenizer->FindEndOfGeneration(spec);
  tokenizer->FindControlTokens(spec);
  SLUICE_RETURN_IF_ERROR(tokenizer->FillAddedTokens(spec));
  tokenizer->bos_id_ = spec.bos_id;
  tokenizer->eos_id_ = spec.eos_id;
  tokenizer->eot_id_ = spec.eot_id;
  tokenizer->unk_id_ = spec.unk_id;
  tokenizer->pad_id_ = spec.pad_id;
  tokenizer->add_bos_ = spec.add_bos;
  tokenizer->add_eos_ = spec.add_eos;
  tokenizer->prefix_ids_ = spec.prefix_ids;
  tokenizer->suffix_ids_ = spec.suffix_ids;
  tokenizer->bytes_by_type_ = !spec.decoder.has_value() && spec.model == TokenizerModel::kSentencePieceBpe;
  absl::StatusOr<TokenDecoder> decoder = TokenDecoder::Create(spec.decoder.has_value() ? *spec.decoder : UsualDecoder(spec));
  if (!decoder.ok()) {
    return absl::Status(decoder.status().code(), absl::StrCat("tokenizer decoder: ", decoder.status().message()));
  }
  tokenizer->decoder_ = *std::move(decoder);
  tokenizer->tokens_ = std::move(spec.tokens);
  tokenizer->types_ = std::move(spec.types);
  tokenizer->storage_ = std::move(spec.storage);
  SLUICE_RETURN_IF_ERROR(tokenizer->FillTokenBytes());
  return tokenizer;
}

void Tokenizer::FindControlTokens(const TokenizerSpec& spec) {
  control_.assign(spec.tokens.size(), false);
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const absl::string_view text = spec.tokens[i];
    control_[i] =
        spec.types[i] == TokenType::kControl || spec.types[i] == TokenType::kUnknown ||
        (spec.types[i] == TokenType::kUserDefined && (IsSpelledLikeControl(text) || IsOneOf(kTurnTexts, text)));
  }
  const auto add = [&](int32_t id) { control_[id] = control_[id] || IsAdded(spec.types[id]); };
  for (const std::optional<int32_t>& id : {spec.bos_id, spec.unk_id, spec.pad_id}) {
    if (id.has_value()) add(*id);
  }
  for (const int32_t id : end_of_generation_ids_) add(id);
}

absl::Status Tokenizer::FillAddedTokens(const TokenizerSpec& spec) {
  absl::flat_hash_map<int32_t, AddedTokenOptions> options;
  for (const AddedTokenOptions& o : spec.added) options[o.id] = o;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (!IsAdded(spec.types[i])) continue;
    const int32_t id = static_cast<int32_t>(i);
    const auto it = options.find(id);
    std::string text(spec.tokens[i]);
    AddedTokens* tokens = &raw_tokens_;
    if (it != options.end() && it->second.normalized && FindInvalidUtf8(text) == absl::string_view::npos) {
      std::string all_trusted;
      SLUICE_RETURN_IF_ERROR(normalizer_.Run(&text, &all_trusted));
      tokens = &normalized_tokens_;
      if (text != spec.tokens[i]) rewritten_[id] = text;
    }
    tokens->Add(text, id, control_[i]);
    if (it != options.end()) tokens->SetOptions(it->second);
  }
  return absl::OkStatus();
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
    // Gemma has HTML's tags as tokens, of which this one ends a struck-out text.
    if (spec.tokens[i] == "</s>" && spec.types[i] != TokenType::kControl) continue;
    if (IsOneOf(kEndOfGenerationTexts, spec.tokens[i])) ids.push_back(static_cast<int32_t>(i));
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

absl::string_view Tokenizer::DecodedSpelling(int32_t id) const {
  const auto it = rewritten_.find(id);
  return it == rewritten_.end() ? TokenText(id) : absl::string_view(it->second);
}

absl::Status Tokenizer::FillTokenBytes() {
  bytes_offsets_.reserve(tokens_.size() + 1);
  if (decoder_.joins_bytes()) byte_tokens_.assign(tokens_.size(), false);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    bytes_offsets_.push_back(bytes_.size());
    if (bytes_by_type_) {
      byte_tokens_[i] = types_[i] == TokenType::kByte;
      AppendSentencePieceBytes(tokens_[i], types_[i], &bytes_);
      continue;
    }
    SLUICE_ASSIGN_OR_RETURN(const std::string token, decoder_.Token(DecodedSpelling(static_cast<int32_t>(i))));
    if (const int byte = decoder_.joins_bytes() ? ParseByteToken(token) : -1; byte >= 0) {
      byte_tokens_[i] = true;
      bytes_.push_back(static_cast<char>(byte));
    } else {
      bytes_ += decoder_.has_piece_steps() ? decoder_.Piece(token, /*first=*/false) : token;
    }
  }
  bytes_offsets_.push_back(bytes_.size());
  return absl::OkStatus();
}

std::string Tokenizer::FirstTokenBytes(int32_t id) const {
  if (!decoder_.has_piece_steps() || bytes_by_type_) return std::string(TokenBytes(id));
  const absl::StatusOr<std::string> token = decoder_.Token(DecodedSpelling(id));
  SLUICE_CHECK(token.ok());  // as it was when the tokenizer was made
  return decoder_.Piece(*token, /*first=*/true);
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

  // Parsed segments side by side are one range. One that is not parsed parts them even when it is empty: what a
  // template makes of an empty message is no other token than what it makes of any.
  std::vector<TextRange> parsed;
  size_t begin = 0;
  bool apart = true;
  for (const TextSegment& segment : segments) {
    const size_t end = begin + segment.text.size();
    if (!segment.parse_special) {
      apart = true;
    } else if (options.parse_special && begin < end) {
      if (apart) parsed.push_back({begin, begin});
      parsed.back().end = end;
      apart = false;
    }
    begin = end;
  }
  const bool all_parsed = parsed.size() == 1 && parsed[0].end - parsed[0].begin == text.size();

  Encoding encoding;
  if (options.add_special) {
    if (add_bos_) encoding.ids.push_back(*bos_id_);
    encoding.ids.insert(encoding.ids.end(), prefix_ids_.begin(), prefix_ids_.end());
  }
  std::vector<AddedTokens::Match> parts;
  raw_tokens_.Cut(text, parsed, &parts);
  for (const AddedTokens::Match& part : parts) {
    if (part.id >= 0) {
      encoding.ids.push_back(part.id);
      continue;
    }
    std::string trusted;
    if (!normalized_tokens_.empty() && !all_parsed) trusted = TrustedBytes({part.begin, part.end}, parsed);
    SLUICE_RETURN_IF_ERROR(
        EncodeStretch(text.substr(part.begin, part.end - part.begin), part.begin == 0, std::move(trusted), &encoding));
  }
  if (options.add_special) {
    encoding.ids.insert(encoding.ids.end(), suffix_ids_.begin(), suffix_ids_.end());
    if (add_eos_) encoding.ids.push_back(*eos_id_);
  }
  return std::move(encoding.ids);
}

absl::Status Tokenizer::EncodeStretch(absl::string_view text, bool at_start, std::string trusted,
                                      Encoding* encoding) const {
  std::string normalized;
  if (!normalizer_.empty()) {
    normalized = std::string(text);
    SLUICE_RETURN_IF_ERROR(normalizer_.Run(&normalized, &trusted));
    text = normalized;
  }
  if (normalized_tokens_.empty()) return EncodeWords(text, at_start, encoding);
  std::vector<AddedTokens::Match> parts;
  normalized_tokens_.Cut(text, trusted.empty() ? std::vector<TextRange>{{0, text.size()}} : TrustedRanges(trusted),
                         &parts);
  for (const AddedTokens::Match& part : parts) {
    if (part.id >= 0) {
      encoding->ids.push_back(part.id);
    } else {
      SLUICE_RETURN_IF_ERROR(
          EncodeWords(text.substr(part.begin, part.end - part.begin), at_start && part.begin == 0, encoding));
    }
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::EncodeWords(absl::string_view text, bool at_start, Encoding* encoding) const {
  SLUICE_RETURN_IF_ERROR(pre_tokenizer_.Split(text, at_start, &encoding->words));
  std::visit(
      [encoding](const auto& model) {
        for (const absl::string_view word : encoding->words.words) {
          model.Encode(word, &encoding->scratch, &encoding->ids);
        }
      },
      model_);
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

bool Tokenizer::IsSpecial(int32_t id) const {
  return Contains(id) && (types_[id] == TokenType::kControl || types_[id] == TokenType::kUnknown) &&
         !rewritten_.contains(id);
}

}  // namespace sluice
