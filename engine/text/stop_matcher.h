// Stop strings over a stream of text: finds the first, and holds text back only while it can still become one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sluice {

// An Aho-Corasick automaton over the stop strings and the state of one stream. The result does not depend on how the
// text is cut into pushes: the stop string that is complete first wins; of several complete at the same byte the one
// that began first (the longest); of equal strings the first in the list. Time is linear in the text, memory in the
// total length of the stops. Not thread-safe; copies are cheap and share the automaton.
class StopMatcher {
 public:
  // Matches nothing.
  StopMatcher() = default;

  // include_stop_text: the matched string stays in the text (and nothing is ever held back). INVALID_ARGUMENT: an empty
  // stop string, or one that is not UTF-8.
  static absl::StatusOr<StopMatcher> Create(absl::Span<const std::string> stops, bool include_stop_text);

  struct Result {
    std::string text;     // may be sent now; whole characters if the pushed text is
    int stop_index = -1;  // in the list of stops; -1: none matched
  };

  // Text after a match is ignored. Without `may_stop` no stop string counts that is complete in `text`; one that begins
  // in it may be completed by later text.
  Result Push(absl::string_view text, bool may_stop = true);

  // The end of the stream: what was held back and did not become a stop string.
  std::string Flush();

 private:
  struct Automaton;

  std::shared_ptr<const Automaton> automaton_;  // null: matches nothing
  uint32_t state_ = 0;
  bool matched_ = false;
  std::string held_;  // the longest end of the text so far that begins a stop string
};

}  // namespace sluice
