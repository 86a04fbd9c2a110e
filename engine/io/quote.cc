#include "engine/io/quote.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sluice {

std::string Quote(absl::string_view text) {
  constexpr size_t kMaxBytes = 80;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kMaxBytes)), text.size() > kMaxBytes ? "..." : "", "'");
}

}  // namespace sluice
