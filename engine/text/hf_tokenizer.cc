#include "engine/text/hf_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "engine/base/parse_json.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"
#include "engine/text/bpe.h"
#include "engine/text/hf_components.h"
#include "engine/text/hf_tokenizer_json.h"
#include "engine/text/merge_table.h"
#include "engine/text/recipes.h"
#include "engine/text/utf8.h"

namespace sluice {
namespace {

using absl::string_view;
using Json = nlohmann::json;

constexpr int64_t kMaxId = (int64_t{1} << 22) - 1;

// A small file; a missing one is null.
absl::StatusOr<Json> ParseSmallFile(string_view text, string_view name) {
  if (text.empty()) return Json();
  return ParseJsonObject(text, name);
}

// The vocabulary in the making: spec.tokens and spec.types by id, and what owns strings besides the big file's.
struct Vocabulary {
  TokenizerSpec* spec;
  std::deque<std::string> strings;  // a deque: its elements stay where they are

  absl::Status Add(string_view text, int64_t id, TokenType type, string_view path) {
    if (static_cast<size_t>(id) >= spec->tokens.size()) {
      spec->tokens.resize(static_cast<size_t>(id) + 1);
      spec->types.resize(static_cast<size_t>(id) + 1, TokenType::kUnused);
    }
    if (!spec->tokens[id].empty() && spec->tokens[id] != text) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": id ", id, " is ", Quote(text), ", but it is ", Quote(spec->tokens[id]), " already"));
    }
    spec->tokens[id] = text;
    spec->types[id] = type;
    return absl::OkStatus();
  }
};

// An entry of added_tokens or added_tokens_decoder. A text that the vocabulary has keeps the id that it has there; any
// other gets `id`. `ids` are those of model.vocab.
absl::Status AddAddedToken(const HfField& token, int64_t id, const TokenIds& ids, Vocabulary* vocabulary) {
  SLUICE_ASSIGN_OR_RETURN(std::string content, token["content"].String());
  const auto known = ids.find(content);
  AddedTokenOptions options;
  options.in_model = known != ids.end();
  options.id = options.in_model ? known->second : static_cast<int32_t>(id);
  SLUICE_ASSIGN_OR_RETURN(const bool special, token["special"].BoolOr(false));
  SLUICE_ASSIGN_OR_RETURN(options.lstrip, token["lstrip"].BoolOr(false));
  SLUICE_ASSIGN_OR_RETURN(options.rstrip, token["rstrip"].BoolOr(false));
  SLUICE_ASSIGN_OR_RETURN(options.single_word, token["single_word"].BoolOr(false));
  SLUICE_ASSIGN_OR_RETURN(options.normalized, token["normalized"].BoolOr(!special));
  // One that is listed twice is special if it ever was; the rest is as it was last.
  const bool was_special = static_cast<size_t>(options.id) < vocabulary->spec->types.size() &&
                           vocabulary->spec->types[options.id] == TokenType::kControl;
  SLUICE_RETURN_IF_ERROR(vocabulary->Add(vocabulary->strings.emplace_back(std::move(content)), options.id,
                                         special || was_special ? TokenType::kControl : TokenType::kUserDefined,
                                         token.path()));
  vocabulary->spec->added.push_back(options);
  return absl::OkStatus();
}

// tokenizer.json's added_tokens. Like the reference it numbers those that model.vocab lacks from the vocabulary's size
// on, in the order of the list, whatever ids the list gives them. Only where the vocabulary has gaps, so that such a
// number is another token's, the list's counts: the reference would have two tokens of one id.
absl::Status AddAddedTokens(const HfField& added_tokens, size_t vocab_size, const TokenIds& ids,
                            Vocabulary* vocabulary) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<HfField> added, added_tokens.List());
  absl::flat_hash_map<std::string, int64_t> numbered;
  for (const HfField& token : added) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t listed, token["id"].Int(0, kMaxId));
    SLUICE_ASSIGN_OR_RETURN(const std::string content, token["content"].String());
    if (content.empty()) continue;  // it cannot occur in a text
    int64_t id = 0;
    if (!ids.contains(content)) {
      id = numbered.try_emplace(content, static_cast<int64_t>(vocab_size + numbered.size())).first->second;
      if (id > kMaxId) return token["content"].Wrong(absl::StrCat("at most ", kMaxId, " tokens"));
      const std::vector<string_view>& tokens = vocabulary->spec->tokens;
      const bool taken = static_cast<size_t>(id) < tokens.size() && !tokens[id].empty() && tokens[id] != content;
      if (taken) id = listed;
    }
    SLUICE_RETURN_IF_ERROR(AddAddedToken(token, id, ids, vocabulary));
  }
  return absl::OkStatus();
}

// tokenizer_config.json's added_tokens_decoder {"ID": {...}}: tokens that the tokenizer itself does not have.
absl::Status AddConfiguredTokens(const HfField& decoder, const TokenIds& ids, Vocabulary* vocabulary) {
  if (decoder.IsNull()) return absl::OkStatus();
  if (!decoder.value()->is_object()) return decoder.Wrong("an object");
  for (const auto& item : decoder.value()->items()) {
    int64_t id = 0;
    const HfField token = decoder[item.key()];
    if (!absl::SimpleAtoi(item.key(), &id) || id < 0 || id > kMaxId) {
      return absl::InvalidArgumentError(
          absl::StrCat(token.path(), ": expected the key to be an id from 0 to ", kMaxId));
    }
    const bool known =
        static_cast<size_t>(id) < vocabulary->spec->tokens.size() && !vocabulary->spec->tokens[id].empty();
    if (known) continue;
    SLUICE_ASSIGN_OR_RETURN(const std::string content, token["content"].String());
    if (content.empty()) return token["content"].Wrong("a text");
    SLUICE_RETURN_IF_ERROR(AddAddedToken(token, id, ids, vocabulary));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenIds> ReadVocabulary(const HfTokenizerJson& json, Vocabulary* vocabulary) {
  TokenIds ids;
  ids.reserve(json.vocabulary.size());
  int64_t largest = -1;
  for (const auto& [token, id] : json.vocabulary) largest = std::max(largest, id);
  vocabulary->spec->tokens.reserve(static_cast<size_t>(largest) + 1);
  for (const auto& [token, id] : json.vocabulary) {
    if (token.empty()) continue;  // it cannot occur in a text
    if (!ids.try_emplace(token, static_cast<int32_t>(id)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.json: model.vocab has ", Quote(token), " twice, expected every token once"));
    }
    SLUICE_RETURN_IF_ERROR(vocabulary->Add(token, id, TokenType::kNormal, "tokenizer.json: model.vocab"));
  }
  return ids;
}

absl::Status ReadModel(const HfField& model, bool byte_level, const TokenIds& ids, TokenizerSpec* spec) {
  if (const HfField dropout = model["dropout"]; !dropout.IsNull() && *dropout.value() != 0) {
    return dropout.Unsupported("supported is null: the same text always has the same tokens");
  }
  for (const string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model[key].IsNull()) continue;
    SLUICE_ASSIGN_OR_RETURN(const std::string text, model[key].String());
    if (!text.empty()) return model[key].Unsupported("supported is null");
  }
  SLUICE_ASSIGN_OR_RETURN(spec->ignore_merges, model["ignore_merges"].BoolOr(false));
  SLUICE_ASSIGN_OR_RETURN(spec->byte_fallback, model["byte_fallback"].BoolOr(false));
  SLUICE_ASSIGN_OR_RETURN(spec->fuse_unk, model["fuse_unk"].BoolOr(false));
  spec->model = byte_level ? TokenizerModel::kByteLevelBpe : TokenizerModel::kCharacterBpe;
  bool every_byte = byte_level || spec->byte_fallback;  // has a token, so that nothing is unknown
  for (int byte = 0; byte < 256 && every_byte; ++byte) {
    std::string symbol;
    if (byte_level) {
      AppendUtf8(ByteLevelCharacter(static_cast<uint8_t>(byte)), &symbol);
    } else {
      symbol = absl::StrFormat("<0x%02X>", byte);
    }
    every_byte = ids.contains(symbol);
  }
  if (!model["unk_token"].IsNull()) {
    SLUICE_ASSIGN_OR_RETURN(const std::string unk, model["unk_token"].String());
    const auto it = ids.find(unk);
    if (it != ids.end()) {
      spec->unk_id = it->second;
    } else if (!every_byte) {
      return model["unk_token"].Wrong("a token of model.vocab");
    }
  }
  if (byte_level && !every_byte && (spec->unk_id.has_value() || spec->byte_fallback)) {
    return model[spec->byte_fallback ? "byte_fallback" : "unk_token"].Unsupported(
        "with ByteLevel, supported is null where model.vocab lacks some of the 256 bytes");
  }
  return absl::OkStatus();
}

// One token before the text is BOS and one after it EOS; more of them have no name.
void ApplyTemplate(const HfTemplate& added, TokenizerSpec* spec) {
  if (added.before.size() == 1) {
    spec->add_bos = true;
    spec->bos_id = added.before[0];
  } else {
    spec->prefix_ids = added.before;
  }
  spec->suffix_ids = added.after;
}

// The id of tokenizer_config.json's `key`, a text or {"content": text}, with special_tokens_map.json as the second
// place. Nothing if neither has it.
absl::StatusOr<std::optional<int32_t>> FindNamedToken(const HfField& config, const HfField& map, string_view key,
                                                      const TokenizerSpec& spec) {
  const HfField field = config[key].IsNull() ? map[key] : config[key];
  if (field.IsNull()) return std::nullopt;
  SLUICE_ASSIGN_OR_RETURN(const std::string text,
                          field.value()->is_object() ? field["content"].String() : field.String());
  const auto it = std::find(spec.tokens.begin(), spec.tokens.end(), text);
  if (text.empty() || it == spec.tokens.end()) return field.Wrong("a token of the vocabulary");
  return static_cast<int32_t>(it - spec.tokens.begin());
}

absl::Status ReadNamedTokens(const HfField& config, const HfField& map, TokenizerSpec* spec) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<int32_t> bos, FindNamedToken(config, map, "bos_token", *spec));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<int32_t> eos, FindNamedToken(config, map, "eos_token", *spec));
  // What the post-processor puts there is what counts.
  if (!spec->add_bos) spec->bos_id = bos;
  spec->eos_id = eos;
  // A text that ends with its only EOS.
  if (spec->suffix_ids.size() == 1 && (!eos.has_value() || eos == spec->suffix_ids[0])) {
    spec->eos_id = spec->suffix_ids[0];
    spec->add_eos = true;
    spec->suffix_ids.clear();
  }
  // Padding and unknown tokens are never made from these names, so one that is not in the vocabulary does no harm.
  if (const auto pad = FindNamedToken(config, map, "pad_token", *spec); pad.ok()) spec->pad_id = *pad;
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadChatTemplate(const HfTokenizerFiles& files, const HfField& config) {
  if (!files.chat_template_jinja.empty()) return std::string(files.chat_template_jinja);
  const HfField field = config["chat_template"];
  if (field.IsNull()) return std::string();
  if (!field.value()->is_array()) return field.String();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<HfField> named, field.List());
  for (const HfField& entry : named) {
    SLUICE_ASSIGN_OR_RETURN(const std::string name, entry["name"].String());
    if (name == "default") return entry["template"].String();
  }
  if (named.empty()) return std::string();
  return field.Wrong("a template, or a list with one named \"default\"");
}

struct Configs {
  Json config;
  Json map;
  HfField config_field() const { return HfField(&config, "tokenizer_config.json: "); }
  HfField map_field() const { return HfField(&map, "special_tokens_map.json: "); }
};

absl::StatusOr<Configs> ParseConfigs(const HfTokenizerFiles& files) {
  Configs configs;
  SLUICE_ASSIGN_OR_RETURN(configs.config, ParseSmallFile(files.tokenizer_config_json, "tokenizer_config.json"));
  SLUICE_ASSIGN_OR_RETURN(configs.map, ParseSmallFile(files.special_tokens_map_json, "special_tokens_map.json"));
  return configs;
}

// What owns the strings of a spec.
struct Storage {
  std::shared_ptr<const std::string> large;
  std::deque<std::string> small;
};

absl::Status ReadTokenizerJson(string_view text, const Configs& configs, TokenizerSpec* spec) {
  SLUICE_ASSIGN_OR_RETURN(HfTokenizerJson json, ParseHfTokenizerJson(text));
  const HfField root(&json.rest, "tokenizer.json: ");
  const HfField model = root["model"];
  if (model.IsNull()) return model.Wrong("an object");
  // Old files leave the type of a BPE model out. Other models have another kind of vocabulary, so this comes first.
  if (!model["type"].IsNull()) {
    SLUICE_ASSIGN_OR_RETURN(const std::string type, model["type"].String());
    if (type != "BPE") return model["type"].Unsupported("supported is BPE");
  }
  if (!model["vocab"].IsNull()) return model["vocab"].Wrong("an object");
  if (!model["merges"].IsNull()) return model["merges"].Wrong("a list");
  if (json.vocabulary.empty()) return model["vocab"].Wrong("an object with at least one token");

  Vocabulary vocabulary{spec, {}};
  SLUICE_ASSIGN_OR_RETURN(const auto ids, ReadVocabulary(json, &vocabulary));
  SLUICE_RETURN_IF_ERROR(AddAddedTokens(root["added_tokens"], json.vocabulary.size(), ids, &vocabulary));
  SLUICE_RETURN_IF_ERROR(AddConfiguredTokens(configs.config_field()["added_tokens_decoder"], ids, &vocabulary));
  spec->merges = std::move(json.merges);

  // truncation and padding belong to batches of training texts; a server neither cuts a prompt nor fills it up.
  bool byte_level = false;
  SLUICE_RETURN_IF_ERROR(ReadHfNormalizer(root["normalizer"], &spec->normalizer));
  SLUICE_RETURN_IF_ERROR(ReadHfPreTokenizer(root["pre_tokenizer"], &spec->pre_tokenizer, &byte_level));
  SLUICE_RETURN_IF_ERROR(ReadModel(model, byte_level, ids, spec));
  SLUICE_ASSIGN_OR_RETURN(spec->decoder, ReadHfDecoder(root["decoder"]));
  HfTemplate added_ids;
  SLUICE_RETURN_IF_ERROR(ReadHfPostProcessor(root["post_processor"], &added_ids));
  ApplyTemplate(added_ids, spec);
  spec->storage = std::make_shared<Storage>(Storage{json.storage, std::move(vocabulary.strings)});
  return absl::OkStatus();
}

// tiktoken.model: a line "BASE64 RANK" for every token. The pattern and the names of the special tokens are Python code
// there, of which Kimi's is known: the 256 ids after the ranks are special, reserved where tokenizer_config.json has no
// name for them.
absl::Status ReadTiktoken(string_view text, const Configs& configs, TokenizerSpec* spec) {
  const HfField config = configs.config_field(), type = config["tokenizer_class"];
  if (type.IsNull() || type.value()->get<Json>() != "TikTokenTokenizer") {
    return type.Unsupported("with a tiktoken.model, supported is TikTokenTokenizer (Kimi)");
  }
  Vocabulary vocabulary{spec, {}};
  int64_t line_number = 0;
  for (const string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    ++line_number;
    const std::pair<string_view, string_view> parts = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    int64_t rank = 0;
    std::string bytes;
    if (!absl::Base64Unescape(parts.first, &bytes) || bytes.empty() || !absl::SimpleAtoi(parts.second, &rank) ||
        rank < 0 || rank > kMaxId) {
      return absl::InvalidArgumentError(absl::StrCat("tiktoken.model: line ", line_number,
                                                     ": expected a token in base64 and a rank from 0 to ", kMaxId));
    }
    SLUICE_RETURN_IF_ERROR(
        vocabulary.Add(vocabulary.strings.emplace_back(std::move(bytes)), rank, TokenType::kNormal, "tiktoken.model"));
  }
  constexpr int64_t kSpecialTokens = 256;
  const int64_t ranks = static_cast<int64_t>(spec->tokens.size());
  SLUICE_RETURN_IF_ERROR(AddConfiguredTokens(config["added_tokens_decoder"], {}, &vocabulary));
  for (int64_t id = ranks; id < ranks + kSpecialTokens; ++id) {
    if (static_cast<size_t>(id) < spec->tokens.size() && !spec->tokens[id].empty()) continue;
    SLUICE_RETURN_IF_ERROR(vocabulary.Add(vocabulary.strings.emplace_back(absl::StrCat("<|reserved_token_", id, "|>")),
                                          id, TokenType::kControl, "tiktoken.model"));
  }
  spec->model = TokenizerModel::kRankedBpe;
  spec->pre_tokenizer.push_back({.pattern = {std::string(kKimiPattern), true}});
  spec->decoder = DecoderSpec();
  spec->storage = std::make_shared<Storage>(Storage{nullptr, std::move(vocabulary.strings)});
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HfTokenizer> ReadHfTokenizer(const HfTokenizerFiles& files) {
  SLUICE_ASSIGN_OR_RETURN(const Configs configs, ParseConfigs(files));
  HfTokenizer result;
  if (!files.tokenizer_json.empty()) {
    SLUICE_RETURN_IF_ERROR(ReadTokenizerJson(files.tokenizer_json, configs, &result.spec));
  } else if (!files.tiktoken_model.empty()) {
    SLUICE_RETURN_IF_ERROR(ReadTiktoken(files.tiktoken_model, configs, &result.spec));
  } else {
    return absl::NotFoundError("found neither tokenizer.json nor tiktoken.model");
  }
  SLUICE_RETURN_IF_ERROR(ReadNamedTokens(configs.config_field(), configs.map_field(), &result.spec));
  SLUICE_ASSIGN_OR_RETURN(result.chat_template, ReadChatTemplate(files, configs.config_field()));
  return result;
}

absl::StatusOr<std::string> ReadHfChatTemplate(const HfTokenizerFiles& files) {
  SLUICE_ASSIGN_OR_RETURN(const Configs configs, ParseConfigs(files));
  return ReadChatTemplate(files, configs.config_field());
}

}  // namespace sluice
