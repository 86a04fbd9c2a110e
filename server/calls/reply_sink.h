// Where the events of one call go, over whatever transport: a stream sends them one by one, a unary call folds them
// into its answer.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "proto/answer.h"

namespace sluice {

// Thread-safe; never blocks. Order: Open, started, then deltas and choice_finished, completed, Close. After Close, or
// once the client is gone, everything is ignored. Once it is open it tells the Calls if its client gets no more, and
// when nothing more is written.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  // Before all else, while only one thread knows the sink: the ids that the client is told.
  virtual void Open(const std::string& request_id, const std::string& server_request_id) = 0;
  // The output of another step follows, in one or several events. Here, and not between them, it is judged whether the
  // client keeps up.
  virtual void BeginStep() = 0;
  virtual void Send(AnswerEvent event) = 0;
  // Ends the call once everything sent before has been written.
  virtual void Close(const absl::Status& status) = 0;
};

}  // namespace sluice
