#include "engine/text/jinja/text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::jinja {

Origin Text::OriginAt(size_t byte) const {
  const auto range = std::partition_point(user.begin(), user.end(), [&](const ByteRange& r) { return r.end <= byte; });
  return range != user.end() && range->begin <= byte ? range->origin : Origin::kTemplate;
}

bool TextBuilder::Reserve(size_t bytes) {
  if (!status_.ok()) return false;
  if (bytes > max_bytes_ - text_.bytes.size()) {
    status_ = absl::ResourceExhaustedError(absl::StrCat("the chat template renders more than ", max_bytes_, " bytes"));
  } else {
    status_ = budget_->Build(bytes);
  }
  return status_.ok();
}

void TextBuilder::AddUserRange(size_t begin, size_t end, Origin origin) {
  if (begin == end || origin == Origin::kTemplate) return;
  if (!text_.user.empty() && text_.user.back().end == begin && text_.user.back().origin == origin) {
    text_.user.back().end = end;
    return;
  }
  if (status_ = budget_->Build(sizeof(ByteRange)); status_.ok()) text_.user.push_back({begin, end, origin});
}

void TextBuilder::Append(absl::string_view bytes, Origin origin) {
  if (bytes.empty() || !Reserve(bytes.size())) return;
  const size_t begin = text_.bytes.size();
  text_.bytes.append(bytes.data(), bytes.size());
  if (text_.ascii) text_.ascii = std::all_of(bytes.begin(), bytes.end(), [](char c) { return (c & 0x80) == 0; });
  AddUserRange(begin, text_.bytes.size(), origin);
}

void TextBuilder::AppendRepeated(absl::string_view bytes, int64_t count, Origin origin) {
  if (count <= 0 || bytes.empty() || !status_.ok()) return;
  const auto times = static_cast<size_t>(count);
  if (times > max_bytes_ / bytes.size() || !Reserve(times * bytes.size())) {
    if (status_.ok()) Reserve(max_bytes_ - text_.bytes.size() + 1);  // fails, and says why
    return;
  }
  const size_t begin = text_.bytes.size();
  for (size_t i = 0; i < times; ++i) text_.bytes.append(bytes.data(), bytes.size());
  if (text_.ascii) text_.ascii = std::all_of(bytes.begin(), bytes.end(), [](char c) { return (c & 0x80) == 0; });
  AddUserRange(begin, text_.bytes.size(), origin);
}

void TextBuilder::Append(const TextSlice& slice) {
  const size_t begin = text_.bytes.size();
  Append(slice.view(), Origin::kTemplate);
  if (!status_.ok()) return;
  const auto& user = slice.text->user;
  auto first = std::partition_point(user.begin(), user.end(), [&](const ByteRange& r) { return r.end <= slice.begin; });
  for (; first != user.end() && first->begin < slice.end && status_.ok(); ++first) {
    AddUserRange(begin + std::max(first->begin, slice.begin) - slice.begin,
                 begin + std::min(first->end, slice.end) - slice.begin, first->origin);
  }
}

absl::StatusOr<Text> TextBuilder::Finish() && {
  if (!status_.ok()) return status_;
  return std::move(text_);
}

}  // namespace sluice::jinja
