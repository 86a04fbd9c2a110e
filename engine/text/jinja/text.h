// Text that remembers where it came from. A chat template mixes its own text (control tokens such as <|im_start|>) with
// text of a message; only the first may become control tokens. So every string carries the byte ranges that came from a
// user, and every operation keeps them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/jinja/budget.h"

namespace sluice::jinja {

// Whose a text is. Values above kUser are texts of users as well, which the caller tells apart (one message from
// another, say).
enum class Origin : uint32_t { kTemplate = 0, kUser = 1 };

// Half-open range of bytes that came from a user.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
  Origin origin = Origin::kUser;
  bool operator==(const ByteRange&) const = default;
};

// Valid UTF-8. Never changes once a Value shows it.
struct Text {
  std::string bytes;
  std::vector<ByteRange> user;  // ascending, not empty; those that touch each other differ in origin
  bool ascii = true;

  // Of the whole: the template's if all of it is, else that of the first part that is not.
  Origin origin() const { return user.empty() ? Origin::kTemplate : user.front().origin; }
  Origin OriginAt(size_t byte) const;
};

// Part [begin, end) of a Text, without a copy.
struct TextSlice {
  const Text* text = nullptr;
  size_t begin = 0;
  size_t end = 0;

  absl::string_view view() const { return absl::string_view(text->bytes).substr(begin, end - begin); }
};

// Puts a Text together from pieces. Spends the budget while it grows; when that is spent it stops growing and Finish
// (or status()) tells. `max_bytes` bounds the text itself.
class TextBuilder {
 public:
  explicit TextBuilder(Budget& budget) : budget_(&budget), max_bytes_(budget.limits().max_built_bytes) {}
  TextBuilder(Budget& budget, size_t max_bytes) : budget_(&budget), max_bytes_(max_bytes) {}

  void Append(absl::string_view bytes, Origin origin);
  void Append(const Text& text) { Append(TextSlice{&text, 0, text.bytes.size()}); }
  void Append(const TextSlice& slice);

  // `count` times the same; `bytes` is short.
  void AppendRepeated(absl::string_view bytes, int64_t count, Origin origin);

  const absl::Status& status() const { return status_; }
  size_t size() const { return text_.bytes.size(); }
  absl::StatusOr<Text> Finish() &&;

 private:
  bool Reserve(size_t bytes);
  void AddUserRange(size_t begin, size_t end, Origin origin);

  Budget* budget_;
  size_t max_bytes_;
  Text text_;
  absl::Status status_;
};

}  // namespace sluice::jinja
