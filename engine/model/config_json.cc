#include "engine/model/config_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/parse_json.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"
#include "engine/io/mapped_file.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxFileBytes = size_t{16} << 20;

std::optional<int64_t> AsInt(const Json& value, int64_t min, int64_t max) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) return std::nullopt;
  const int64_t n = value.get<int64_t>();
  if (n < min || n > max) return std::nullopt;
  return n;
}

std::optional<float> AsFloat(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  if (!(std::abs(number) <= double{std::numeric_limits<float>::max()})) return std::nullopt;
  return float(number);
}

std::string Range(int64_t min, int64_t max) { return absl::StrCat("an integer from ", min, " to ", max); }

}  // namespace

struct ConfigJson::Document {
  explicit Document(Json json) : json(std::move(json)) {}

  const Json json;
  mutable Mutex mutex;
  mutable absl::flat_hash_set<std::string> read ABSL_GUARDED_BY(mutex);  // with the objects they are in
  mutable std::vector<std::string> warnings ABSL_GUARDED_BY(mutex);
};

struct ConfigJson::Rep {
  std::shared_ptr<const Document> document;
  const Json* object;

  // The member `key`, whose whole name is prefix + key, or null when it is missing or JSON null.
  const Json* Member(const std::string& prefix, absl::string_view key) const {
    {
      MutexLock lock(&document->mutex);
      document->read.insert(absl::StrCat(prefix, key));
    }
    const auto it = object->find(std::string(key));
    return it == object->end() || it->is_null() ? nullptr : &*it;
  }
};

ConfigJson::ConfigJson(std::shared_ptr<const Rep> rep, std::string name, std::string prefix)
    : rep_(std::move(rep)), name_(std::move(name)), prefix_(std::move(prefix)) {}

absl::StatusOr<ConfigJson> ConfigJson::Open(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  const absl::Span<const uint8_t> bytes = file.bytes();
  return Parse(absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), path);
}

absl::StatusOr<ConfigJson> ConfigJson::Parse(absl::string_view text, std::string name) {
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", text.size(), " bytes of JSON, expected at most ", kMaxFileBytes));
  }
  SLUICE_ASSIGN_OR_RETURN(Json json, ParseJsonObject(text, name));
  auto document = std::make_shared<const Document>(std::move(json));
  auto rep = std::make_shared<const Rep>(Rep{document, &document->json});
  return ConfigJson(std::move(rep), std::move(name), "");
}

bool ConfigJson::empty() const { return rep_->object->empty(); }

bool ConfigJson::Has(absl::string_view key) const { return rep_->object->contains(std::string(key)); }

bool ConfigJson::IsNull(absl::string_view key) const { return rep_->Member(prefix_, key) == nullptr && Has(key); }

absl::Status ConfigJson::WrongValue(absl::string_view key, absl::string_view expected) const {
  // A long value (a whole vocabulary, say) is cut: the key says where it is. Only bytes of valid UTF-8 come in.
  std::string found = rep_->object->at(std::string(key)).dump(-1, ' ', true, Json::error_handler_t::replace);
  if (found.size() > 80) found = found.substr(0, 77) + "...";
  return absl::InvalidArgumentError(
      absl::StrCat(name_, ": key ", Quote(absl::StrCat(prefix_, key)), " is ", found, ", expected ", expected));
}

absl::Status ConfigJson::Missing(absl::string_view key) const {
  return absl::InvalidArgumentError(
      absl::StrCat(name_, ": key ", Quote(absl::StrCat(prefix_, key)), " is ", IsNull(key) ? "null" : "missing"));
}

absl::StatusOr<std::optional<int64_t>> ConfigJson::FindInt(absl::string_view key, int64_t min, int64_t max) const {
  const Json* value = rep_->Member(prefix_, key);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> n = AsInt(*value, min, max);
  if (!n.has_value()) return WrongValue(key, Range(min, max));
  return n;
}

absl::StatusOr<int64_t> ConfigJson::GetInt(absl::string_view key, int64_t min, int64_t max) const {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<int64_t> value, FindInt(key, min, max));
  if (!value.has_value()) return Missing(key);
  return *value;
}

absl::StatusOr<int64_t> ConfigJson::IntOr(absl::string_view key, int64_t min, int64_t max, int64_t otherwise) const {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<int64_t> value, FindInt(key, min, max));
  return value.value_or(otherwise);
}

absl::StatusOr<std::optional<float>> ConfigJson::FindFloat(absl::string_view key) const {
  const Json* value = rep_->Member(prefix_, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) return WrongValue(key, "a number");
  const std::optional<float> number = AsFloat(*value);
  if (!number.has_value()) return WrongValue(key, "a finite number");
  return number;
}

absl::StatusOr<float> ConfigJson::GetFloat(absl::string_view key) const {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<float> value, FindFloat(key));
  if (!value.has_value()) return Missing(key);
  return *value;
}

absl::StatusOr<float> ConfigJson::FloatOr(absl::string_view key, float otherwise) const {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<float> value, FindFloat(key));
  return value.value_or(otherwise);
}

absl::StatusOr<std::optional<bool>> ConfigJson::FindBool(absl::string_view key) const {
  const Json* value = rep_->Member(prefix_, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) return WrongValue(key, "true or false");
  return std::optional<bool>(value->get<bool>());
}

absl::StatusOr<bool> ConfigJson::BoolOr(absl::string_view key, bool otherwise) const {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<bool> value, FindBool(key));
  return value.value_or(otherwise);
}

absl::StatusOr<std::optional<std::string>> ConfigJson::FindString(absl::string_view key) const {
  const Json* value = rep_->Member(prefix_, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return WrongValue(key, "a string");
  return std::optional<std::string>(value->get<std::string>());
}

absl::StatusOr<std::string> ConfigJson::GetString(absl::string_view key) const {
  SLUICE_ASSIGN_OR_RETURN(std::optional<std::string> value, FindString(key));
  if (!value.has_value()) return Missing(key);
  return *std::move(value);
}

absl::StatusOr<std::optional<ConfigJson>> ConfigJson::FindObject(absl::string_view key) const {
  const Json* value = rep_->Member(prefix_, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) return WrongValue(key, "an object");
  auto rep = std::make_shared<const Rep>(Rep{rep_->document, value});
  return std::optional<ConfigJson>(ConfigJson(std::move(rep), name_, absl::StrCat(prefix_, key, ".")));
}

absl::StatusOr<ConfigJson> ConfigJson::GetObject(absl::string_view key) const {
  SLUICE_ASSIGN_OR_RETURN(std::optional<ConfigJson> value, FindObject(key));
  if (!value.has_value()) return Missing(key);
  return *std::move(value);
}

absl::StatusOr<std::optional<std::vector<int64_t>>> ConfigJson::FindInts(absl::string_view key, int64_t min,
                                                                         int64_t max) const {
  const Json* value = rep_->Member(prefix_, key);
  if (value == nullptr) return std::nullopt;
  std::vector<int64_t> numbers;
  const Json list = value->is_array() ? *value : Json::array({*value});
  for (const Json& item : list) {
    const std::optional<int64_t> n = AsInt(item, min, max);
    if (!n.has_value()) return WrongValue(key, absl::StrCat(Range(min, max), ", or a list of such"));
    numbers.push_back(*n);
  }
  return std::optional<std::vector<int64_t>>(std::move(numbers));
}

absl::StatusOr<std::optional<std::vector<float>>> ConfigJson::FindFloats(absl::string_view key) const {
  const Json* value = rep_->Member(prefix_, key);
  if (value == nullptr) return std::nullopt;
  std::vector<float> numbers;
  if (!value->is_array()) return WrongValue(key, "a list of numbers");
  for (const Json& item : *value) {
    const std::optional<float> number = AsFloat(item);
    if (!number.has_value()) return WrongValue(key, "a list of finite numbers");
    numbers.push_back(*number);
  }
  return std::optional<std::vector<float>>(std::move(numbers));
}

absl::StatusOr<std::optional<std::vector<std::string>>> ConfigJson::FindStrings(absl::string_view key) const {
  const Json* value = rep_->Member(prefix_, key);
  if (value == nullptr) return std::nullopt;
  std::vector<std::string> strings;
  if (!value->is_array()) return WrongValue(key, "a list of strings");
  for (const Json& item : *value) {
    if (!item.is_string()) return WrongValue(key, "a list of strings");
    strings.push_back(item.get<std::string>());
  }
  return std::optional<std::vector<std::string>>(std::move(strings));
}

void ConfigJson::Ignore(absl::string_view key) const { rep_->Member(prefix_, key); }

void ConfigJson::Warn(std::string text) const {
  MutexLock lock(&rep_->document->mutex);
  rep_->document->warnings.push_back(absl::StrCat(name_, ": ", text));
}

std::vector<std::string> ConfigJson::Warnings() const {
  MutexLock lock(&rep_->document->mutex);
  return rep_->document->warnings;
}

std::vector<std::string> ConfigJson::UnreadKeys() const {
  std::vector<std::string> unread;
  MutexLock lock(&rep_->document->mutex);
  const absl::flat_hash_set<std::string>& read = rep_->document->read;
  const auto walk = [&](const auto& self, const Json& object, const std::string& prefix) -> void {
    for (const auto& [key, value] : object.items()) {
      std::string name = absl::StrCat(prefix, key);
      if (value.is_null()) continue;
      if (!read.contains(name)) {
        unread.push_back(std::move(name));
      } else if (value.is_object()) {
        self(self, value, name + ".");
      }
    }
  };
  walk(walk, *rep_->object, prefix_);
  std::sort(unread.begin(), unread.end());
  return unread;
}

}  // namespace sluice
