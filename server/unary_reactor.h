// A unary generation call: the events of the same path as a stream's, folded into one answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/call_reactor.h"

namespace sluice {

// Of completions and chats: their answers are the same bytes.
class UnaryReactor final : public CallReactor<grpc::ServerUnaryReactor> {
 public:
  // `context` and `answer` are the call's; `desk` and `calls` outlive the reactor.
  static std::shared_ptr<UnaryReactor> Create(grpc::CallbackServerContext* context, grpc::ByteBuffer* answer,
                                              FrontDesk* desk, Calls* calls);

  void BeginStep() override {}
  void Send(AnswerEvent event) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Close(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  UnaryReactor(grpc::CallbackServerContext* context, grpc::ByteBuffer* bytes, FrontDesk* desk, Calls* calls)
      : CallReactor(context, desk, calls), bytes_(bytes) {}

  void Cut() override ABSL_LOCKS_EXCLUDED(mutex_);
  grpc::ByteBuffer AnswerLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishLocked(const absl::Status& status) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::ByteBuffer* const bytes_;  // lives until OnDone

  Answer answer_ ABSL_GUARDED_BY(mutex_);                   // without its lists, which wait as bytes:
  std::vector<std::string> lists_ ABSL_GUARDED_BY(mutex_);  // of each choice, see TakeLists
  std::string prompt_logprobs_ ABSL_GUARDED_BY(mutex_);
  int64_t answer_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of the events folded so far
};

}  // namespace sluice
