#include "engine/text/hf_tokenizer_json.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/parse_json.h"
#include "engine/base/quote.h"

namespace sluice {
namespace {

using absl::string_view;
using Json = nlohmann::json;

constexpr size_t kMaxDepth = 64;
constexpr int64_t kMaxId = int64_t{1} << 22;

// Receives the events of the parser. Inside of model.vocab and model.merges it fills the lists, elsewhere a tree.
class Handler : public nlohmann::json_sax<Json> {
 public:
  Handler(HfTokenizerJson* out, string_view json) : out_(out), json_(json) {
    // A string is never longer than its JSON, so this never grows, and the views into it stay.
    out_->storage = std::make_shared<std::string>();
    out_->storage->reserve(json.size());
  }

  const absl::Status& status() const { return status_; }

  bool null() override { return Value(nullptr, "null"); }
  bool boolean(bool v) override { return Value(v, "a boolean"); }
  bool number_integer(int64_t v) override { return place_ == Place::kVocabulary ? Id(v) : Value(v, "a number"); }
  bool number_unsigned(uint64_t v) override {
    if (place_ == Place::kVocabulary) return Id(v > uint64_t{INT64_MAX} ? INT64_MAX : static_cast<int64_t>(v));
    return Value(v, "a number");
  }
  bool number_float(double v, const std::string&) override { return Value(v, "a number"); }
  bool binary(Json::binary_t&) override { return false; }

  bool string(std::string& v) override {
    if (place_ == Place::kMerges) {
      if (v.rfind("#version", 0) == 0) return true;
      const size_t space = v.find(' ');
      if (space == std::string::npos || v.find(' ', space + 1) != std::string::npos) {
        return Fail(absl::StrCat("model.merges[", out_->merges.size(), "] is ", Quote(v),
                                 ", expected two tokens with one space between them"));
      }
      const string_view kept = Keep(v);
      out_->merges.push_back({kept.substr(0, space), kept.substr(space + 1)});
      return true;
    }
    if (place_ == Place::kPair) {
      MergeRule& rule = out_->merges.back();
      if (pair_size_ < 2) (pair_size_ == 0 ? rule.left : rule.right) = Keep(v);
      ++pair_size_;
      return true;
    }
    return Value(v, "a string");
  }

  bool start_object(size_t) override {
    if (place_ != Place::kTree) return Value(nullptr, "an object");
    if (IsModelMember("vocab")) {
      place_ = Place::kVocabulary;
      return true;
    }
    return Open(Json::object());
  }
  bool key(std::string& v) override {
    if (place_ == Place::kVocabulary) {
      token_ = Keep(v);
    } else {
      keys_.back() = v;
    }
    return true;
  }
  bool end_object() override {
    if (place_ == Place::kVocabulary) {
      place_ = Place::kTree;
      return true;
    }
    return Close();
  }
  bool start_array(size_t) override {
    if (place_ == Place::kMerges) {
      place_ = Place::kPair;
      pair_size_ = 0;
      out_->merges.emplace_back();
      return true;
    }
    if (place_ != Place::kTree) return Value(nullptr, "an array");
    if (IsModelMember("merges")) {
      place_ = Place::kMerges;
      return true;
    }
    return Open(Json::array());
  }
  bool end_array() override {
    if (place_ == Place::kPair) {
      if (pair_size_ != 2) {
        return Fail(absl::StrCat("model.merges[", out_->merges.size() - 1, "] has ", pair_size_, " parts, expected 2"));
      }
      place_ = Place::kMerges;
      return true;
    }
    if (place_ == Place::kMerges) {
      place_ = Place::kTree;
      return true;
    }
    return Close();
  }

  bool parse_error(size_t position, const std::string& last_token, const nlohmann::detail::exception& error) override {
    std::string key = absl::StrJoin(keys_, ".");
    if (place_ == Place::kVocabulary) key = "model.vocab";
    if (place_ == Place::kMerges || place_ == Place::kPair) key = "model.merges";
    return Fail(absl::StrCat(LineAndColumn(json_, position - std::min<size_t>(position, 1)),
                             key.empty() ? "" : absl::StrCat(", key ", Quote(key)),
                             ": not valid JSON: ", JsonProblem(error, last_token)));
  }

 private:
  enum class Place { kTree, kVocabulary, kMerges, kPair };

  bool Fail(string_view message) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat("tokenizer.json: ", message));
    return false;
  }

  string_view Keep(const std::string& text) {
    const size_t begin = out_->storage->size();
    out_->storage->append(text);
    return string_view(*out_->storage).substr(begin);
  }

  bool IsModelMember(string_view key) const { return keys_.size() == 2 && keys_[0] == "model" && keys_[1] == key; }

  bool Id(int64_t id) {
    if (id < 0 || id >= kMaxId) {
      return Fail(absl::StrCat("model.vocab[", Quote(token_), "] is ", id, ", expected an id from 0 to ", kMaxId - 1));
    }
    out_->vocabulary.emplace_back(token_, id);
    return true;
  }

  // Where the next value of the tree goes.
  Json* Slot() {
    if (open_.empty()) return &out_->rest;
    if (open_.back()->is_object()) return &(*open_.back())[keys_.back()];
    open_.back()->emplace_back();
    return &open_.back()->back();
  }

  bool Value(Json value, string_view kind) {
    switch (place_) {
      case Place::kVocabulary:
        return Fail(absl::StrCat("model.vocab[", Quote(token_), "] is ", kind, ", expected an id"));
      case Place::kMerges:
        return Fail(absl::StrCat("model.merges[", out_->merges.size(), "] is ", kind, ", expected two tokens"));
      case Place::kPair:
        return Fail(absl::StrCat("model.merges[", out_->merges.size() - 1, "] has ", kind, ", expected tokens"));
      case Place::kTree:
        if (open_.empty()) return Fail(absl::StrCat("found ", kind, ", expected an object"));
        *Slot() = std::move(value);
        return true;
    }
    return false;
  }

  bool Open(Json container) {
    if (open_.size() == kMaxDepth) return Fail(absl::StrCat("nested deeper than ", kMaxDepth));
    if (open_.empty() && !container.is_object()) return Fail("found an array, expected an object");
    Json* slot = Slot();
    *slot = std::move(container);
    open_.push_back(slot);
    keys_.emplace_back();
    return true;
  }

  bool Close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  HfTokenizerJson* out_;
  const string_view json_;
  absl::Status status_;
  Place place_ = Place::kTree;
  std::vector<Json*> open_;        // the containers around the next value; only the last one grows, so pointers stay
  std::vector<std::string> keys_;  // of each, the key read last
  string_view token_;              // of the next id in model.vocab
  int pair_size_ = 0;              // strings read of a merge ["a", "b"]
};

}  // namespace

absl::StatusOr<HfTokenizerJson> ParseHfTokenizerJson(string_view json) {
  HfTokenizerJson out;
  Handler handler(&out, json);
  // The parser takes a zero byte for the end of the text and would not look at what follows.
  if (const size_t zero = json.find('\0'); zero != string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.json: found a zero byte at ", LineAndColumn(json, zero), ", expected JSON"));
  }
  if (!Json::sax_parse(json.begin(), json.end(), &handler)) return handler.status();
  return out;
}

HfField HfField::operator[](string_view key) const {
  std::string path = absl::StrCat(path_, path_.empty() || path_.back() == ' ' ? "" : ".", Printable(key));
  if (value_ == nullptr || !value_->is_object()) return HfField(nullptr, std::move(path));
  const auto it = value_->find(std::string(key));
  return HfField(it == value_->end() ? nullptr : &*it, std::move(path));
}

absl::StatusOr<std::vector<HfField>> HfField::List() const {
  std::vector<HfField> list;
  if (IsNull()) return list;
  if (!value_->is_array()) return Wrong("a list");
  for (size_t i = 0; i < value_->size(); ++i) list.emplace_back(&(*value_)[i], absl::StrCat(path_, "[", i, "]"));
  return list;
}

absl::StatusOr<std::string> HfField::String() const {
  if (IsNull() || !value_->is_string()) return Wrong("a string");
  return value_->get<std::string>();
}

absl::StatusOr<bool> HfField::BoolOr(bool otherwise) const {
  if (IsNull()) return otherwise;
  if (!value_->is_boolean()) return Wrong("true or false");
  return value_->get<bool>();
}

absl::StatusOr<int64_t> HfField::Int(int64_t min, int64_t max) const {
  const std::string expected = absl::StrCat("an integer from ", min, " to ", max);
  if (IsNull() || !value_->is_number_integer()) return Wrong(expected);
  if (value_->is_number_unsigned() && value_->get<uint64_t>() > uint64_t{INT64_MAX}) return Wrong(expected);
  const int64_t n = value_->get<int64_t>();
  if (n < min || n > max) return Wrong(expected);
  return n;
}

std::string HfField::Describe() const {
  if (value_ == nullptr) return "missing";
  std::string found = value_->dump(-1, ' ', true, Json::error_handler_t::replace);
  if (found.size() > 80) found = found.substr(0, 77) + "...";
  return found;
}

absl::Status HfField::Wrong(string_view expected) const {
  return absl::InvalidArgumentError(absl::StrCat(path_, " is ", Describe(), ", expected ", expected));
}

absl::Status HfField::Unsupported(string_view supported) const {
  return absl::UnimplementedError(absl::StrCat(path_, " is ", Describe(), ", which is not supported; ", supported));
}

}  // namespace sluice
