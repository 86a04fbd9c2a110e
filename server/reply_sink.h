// Where the events of one call go: a stream sends them one by one, a unary call folds them into its answer.
#pragma once

#include "absl/status/status.h"
#include "proto/answer.h"

namespace sluice {

// Thread-safe; never blocks. Order: started, then deltas and choice_finished, completed, Close. After Close, or once
// the client is gone, everything is ignored.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  // The output of another step follows, in one or several events. Here, and not between them, it is judged whether the
  // client keeps up.
  virtual void BeginStep() = 0;
  virtual void Send(AnswerEvent event) = 0;
  // Ends the call once everything sent before has been written.
  virtual void Close(const absl::Status& status) = 0;
};

}  // namespace sluice
