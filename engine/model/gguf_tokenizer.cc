#include "engine/model/gguf_tokenizer.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"
#include "engine/model/registry.h"
#include "engine/text/recipes.h"

namespace sluice {
namespace {

std::string Key(absl::string_view key) { return absl::StrCat("tokenizer.ggml.", key); }

absl::StatusOr<std::optional<int32_t>> FindId(const Gguf& gguf, absl::string_view key) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<int64_t> id, gguf.FindInt(Key(key), 0, INT32_MAX));
  if (!id.has_value()) return std::nullopt;
  return std::optional<int32_t>(int32_t(*id));
}

absl::Status ReadIds(const Gguf& gguf, TokenizerSpec* spec) {
  SLUICE_ASSIGN_OR_RETURN(spec->bos_id, FindId(gguf, "bos_token_id"));
  SLUICE_ASSIGN_OR_RETURN(spec->eos_id, FindId(gguf, "eos_token_id"));
  SLUICE_ASSIGN_OR_RETURN(spec->eot_id, FindId(gguf, "eot_token_id"));
  SLUICE_ASSIGN_OR_RETURN(spec->eom_id, FindId(gguf, "eom_token_id"));
  SLUICE_ASSIGN_OR_RETURN(spec->unk_id, FindId(gguf, "unknown_token_id"));
  SLUICE_ASSIGN_OR_RETURN(spec->pad_id, FindId(gguf, "padding_token_id"));
  return absl::OkStatus();
}

absl::Status ReadFlags(const Gguf& gguf, TokenizerSpec* spec) {
  // Without the key, SentencePiece vocabularies start with BOS, and byte-level ones where their family does.
  const absl::StatusOr<const Recipe*> recipe = FindRecipe(spec->pre.value_or(""));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<bool> bos, gguf.FindBool(Key("add_bos_token")));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<bool> eos, gguf.FindBool(Key("add_eos_token")));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<bool> space, gguf.FindBool(Key("add_space_prefix")));
  spec->add_bos = bos.value_or(spec->model == TokenizerModel::kSentencePieceBpe ||
                               (recipe.ok() && (*recipe)->add_bos && spec->bos_id.has_value()));
  spec->add_eos = eos.value_or(false);
  spec->add_space_prefix = space.value_or(true);
  return absl::OkStatus();
}

// Copies of strings in one piece of memory.
class StringStore {
 public:
  explicit StringStore(std::initializer_list<absl::Span<const absl::string_view>> lists) {
    size_t bytes = 0;
    for (const absl::Span<const absl::string_view> list : lists) {
      for (const absl::string_view text : list) bytes += text.size();
    }
    bytes_->reserve(bytes);  // so that it never moves
  }

  absl::string_view Keep(absl::string_view text) {
    const size_t begin = bytes_->size();
    bytes_->append(text.data(), text.size());
    return absl::string_view(*bytes_).substr(begin);
  }

  std::shared_ptr<const void> Take() && { return std::move(bytes_); }

 private:
  std::shared_ptr<std::string> bytes_ = std::make_shared<std::string>();
};

// What the architecture says of its control tokens; a vocabulary of another one has nothing to say.
void AddTokenOptions(const Gguf& gguf, TokenizerSpec* spec) {
  const absl::StatusOr<const Architecture*> architecture = FindArchitecture(gguf);
  if (!architecture.ok() || !(*architecture)->gguf_tokens_strip_right) return;
  for (size_t i = 0; i < std::min(spec->types.size(), spec->tokens.size()); ++i) {
    const int32_t id = int32_t(i);
    if (spec->types[i] != TokenType::kControl && spec->types[i] != TokenType::kUserDefined) continue;
    if (id == spec->bos_id || id == spec->unk_id || id == spec->pad_id) continue;
    spec->added.push_back({.id = id, .rstrip = true});
  }
}

}  // namespace

absl::StatusOr<std::optional<TokenizerSpec>> ReadTokenizerSpec(const Gguf& gguf) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<absl::string_view> model, gguf.FindString(Key("model")));
  if (!model.has_value() || *model == "none" || *model == "no_vocab") return std::nullopt;
  TokenizerSpec spec;
  if (*model == "gpt2") {
    spec.model = TokenizerModel::kByteLevelBpe;
  } else if (*model == "llama") {
    spec.model = TokenizerModel::kSentencePieceBpe;
  } else {
    return absl::UnimplementedError(absl::StrCat(gguf.name(), ": key ", Quote(Key("model")), " is ", Quote(*model),
                                                 ", which is not supported; supported are gpt2 and llama"));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::vector<absl::string_view> tokens, gguf.GetStringArray(Key("tokens")));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<std::vector<int64_t>> types, gguf.FindIntArray(Key("token_type")));
  if (types.has_value()) {
    for (int64_t type : *types) spec.types.push_back(static_cast<TokenType>(int32_t(type)));
  }
  std::vector<absl::string_view> merges;
  if (spec.model == TokenizerModel::kByteLevelBpe) {
    SLUICE_ASSIGN_OR_RETURN(merges, gguf.GetStringArray(Key("merges")));
    SLUICE_ASSIGN_OR_RETURN(const absl::string_view pre, gguf.GetString(Key("pre")));
    spec.pre = std::string(pre);
  } else {
    SLUICE_ASSIGN_OR_RETURN(spec.scores, gguf.GetFloatArray(Key("scores")));
  }
  // Copied: the file may shrink while the model is served, and what was mapped of it is gone then.
  StringStore strings({tokens, merges});
  for (absl::string_view token : tokens) spec.tokens.push_back(strings.Keep(token));
  for (absl::string_view merge : merges) spec.merges.push_back(ParseMergeRule(strings.Keep(merge)));
  spec.storage = std::move(strings).Take();
  SLUICE_RETURN_IF_ERROR(ReadIds(gguf, &spec));
  SLUICE_RETURN_IF_ERROR(ReadFlags(gguf, &spec));
  if (spec.model == TokenizerModel::kSentencePieceBpe) AddTokenOptions(gguf, &spec);
  return std::optional<TokenizerSpec>(std::move(spec));
}

}  // namespace sluice
