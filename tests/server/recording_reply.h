// The sink of a call in tests: keeps what it is told, and folds it.
#pragma once

#include <string>
#include <utility>

#include "engine/base/mutex.h"
#include "proto/answer.h"
#include "server/calls/reply_sink.h"

namespace sluice {

// Thread-safe, but for the ids, which stand when Calls::Begin has returned.
class RecordingReply : public ReplySink {
 public:
  void Open(const std::string& request_id, const std::string& server_request_id) override {
    this->request_id = request_id;
    this->server_request_id = server_request_id;
  }
  void BeginStep() override {}
  void Send(AnswerEvent event) override {
    MutexLock lock(&mutex_);
    Fold(std::move(event), &answer_);
  }
  void Close(const absl::Status& status) override {
    MutexLock lock(&mutex_);
    status_ = status;
    closed_ = true;
    changed_.NotifyAll();
  }

  // Until the call has ended; with what.
  absl::Status Wait() {
    MutexLock lock(&mutex_);
    while (!closed_) changed_.Wait(&mutex_);
    return status_;
  }
  Answer answer() const {
    MutexLock lock(&mutex_);
    return answer_;
  }

  std::string request_id, server_request_id;

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  Answer answer_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice
