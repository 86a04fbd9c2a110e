#include "engine/base/parse_json.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/quote.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxDepth = 64;

// A text with Python's NaN, Infinity and -Infinity in quotes, and the way back to places of the original.
class QuotedConstants {
 public:
  explicit QuotedConstants(absl::string_view text) : original_(text) {
    size_t copied = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.size(); ++i) {
      if (in_string) {
        if (text[i] == '\\')
          ++i;
        else if (text[i] == '"')
          in_string = false;
        continue;
      }
      if (text[i] == '"') in_string = true;
      const size_t length = ConstantAt(i);
      if (length == 0) continue;
      absl::StrAppend(&quoted_, text.substr(copied, i - copied), R"(")", text.substr(i, length), R"(")");
      ends_.push_back(quoted_.size());
      copied = i + length;
      i = copied - 1;
    }
    if (copied > 0) absl::StrAppend(&quoted_, text.substr(copied));
  }

  absl::string_view json() const { return ends_.empty() ? original_ : absl::string_view(quoted_); }
  size_t OriginalOffset(size_t offset) const {
    const size_t before = size_t(std::lower_bound(ends_.begin(), ends_.end(), offset) - ends_.begin());
    return std::min(offset - std::min(offset, 2 * before), original_.size());
  }

 private:
  // Length of the constant that begins at `i`, or 0.
  size_t ConstantAt(size_t i) const {
    if (original_[i] != 'N' && original_[i] != 'I' && original_[i] != '-') return 0;
    if (i > 0 && absl::ascii_isalnum(uint8_t(original_[i - 1]))) return 0;
    for (const absl::string_view constant : {"NaN", "Infinity", "-Infinity"}) {
      const size_t end = i + constant.size();
      if (!absl::StartsWith(original_.substr(i), constant)) continue;
      if (end == original_.size() || !absl::ascii_isalnum(uint8_t(original_[end]))) return constant.size();
    }
    return 0;
  }

  const absl::string_view original_;
  std::string quoted_;
  std::vector<size_t> ends_;  // of the constants in quoted_
};

// Builds the tree, and stops at what is wrong with it.
class TreeBuilder : public nlohmann::json_sax<Json> {
 public:
  Json TakeTree() { return std::move(tree_); }
  // Of the value that was being read: "rope_scaling.factor".
  std::string Key() const {
    return absl::StrJoin(keys_, ".", [](std::string* out, const std::string& key) { *out += key; });
  }
  const std::string& problem() const { return problem_; }
  // Where the parser stopped; nothing if it was not the parser.
  size_t position() const { return position_; }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override { return Add(value); }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool key(std::string& value) override {
    keys_.back() = value;
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }
  bool parse_error(size_t position, const std::string& last_token, const Json::exception& error) override {
    position_ = position;
    problem_ = absl::StrCat("not valid JSON: ", JsonProblem(error, last_token));
    return false;
  }

 private:
  Json* Slot() {
    if (open_.empty()) return &tree_;
    if (open_.back()->is_object()) return &(*open_.back())[keys_.back()];
    return &open_.back()->emplace_back();
  }
  bool Add(Json value) {
    if (open_.empty()) {
      problem_ = absl::StrCat("found JSON of type ", value.type_name(), ", expected an object");
      return false;
    }
    *Slot() = std::move(value);
    return true;
  }
  bool Open(Json container) {
    if (open_.empty() && !container.is_object()) return Add(std::move(container));
    if (open_.size() == kMaxDepth) {
      problem_ = absl::StrCat("nested deeper than ", kMaxDepth);
      return false;
    }
    Json* const slot = Slot();
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

  Json tree_;
  std::vector<Json*> open_;        // the containers around the next value; only the last one grows, so pointers stay
  std::vector<std::string> keys_;  // of each, the key read last; empty in an array
  std::string problem_;
  size_t position_ = 0;
};

}  // namespace

std::string LineAndColumn(absl::string_view text, size_t offset) {
  const absl::string_view before = text.substr(0, std::min(offset, text.size()));
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  // Bytes that continue a character are not counted.
  const auto starts = [](char c) { return (uint8_t(c) & 0xC0) != 0x80; };
  return absl::StrCat("line ", 1 + std::count(before.begin(), before.end(), '\n'), ", column ",
                      1 + std::count_if(before.begin() + ptrdiff_t(line_start), before.end(), starts));
}

std::string JsonProblem(const Json::exception& error, absl::string_view last_token) {
  // "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error while parsing value - WHAT; last
  // read: 'TOKEN'; expected ...". The token is the file's, and what follows it could be.
  absl::string_view what = error.what();
  if (const size_t dash = what.find(" - "); dash != what.npos) {
    what.remove_prefix(dash + 3);
  } else if (const size_t bracket = what.find("] "); bracket != what.npos) {
    what.remove_prefix(bracket + 2);
    what = what.substr(0, what.find(" parsing '"));  // a number that does not fit
  }
  what = what.substr(0, what.find("; last read"));
  constexpr size_t kShown = 24;  // the end of the token is where it went wrong
  const absl::string_view end = last_token.substr(last_token.size() - std::min(last_token.size(), kShown));
  return absl::StrCat(what, last_token.empty() ? "" : absl::StrCat(", found ", Quote(end)));
}

absl::StatusOr<Json> ParseJsonObject(absl::string_view text, absl::string_view name) {
  const auto bad = [name](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", what...));
  };
  if (const size_t zero = text.find('\0'); zero != absl::string_view::npos) {
    return bad("found a zero byte at ", LineAndColumn(text, zero), ", expected JSON");
  }
  const QuotedConstants quoted(text);
  TreeBuilder tree;
  if (Json::sax_parse(quoted.json().begin(), quoted.json().end(), &tree)) return tree.TakeTree();
  if (tree.position() == 0) return bad(tree.problem());
  // Counted from 1.
  const std::string where = LineAndColumn(text, quoted.OriginalOffset(tree.position() - 1)), key = tree.Key();
  return bad(where, key.empty() ? "" : absl::StrCat(", key ", Quote(key)), ": ", tree.problem());
}

}  // namespace sluice
