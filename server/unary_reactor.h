// A unary generation call: the events of the same path as a stream's, folded into one answer.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "server/calls/calls.h"
#include "server/calls/output_budget.h"
#include "server/calls/reply_sink.h"

namespace sluice {

// Of completions and chats: their answers are the same bytes.
class UnaryReactor final : public grpc::ServerUnaryReactor,
                           public ReplySink,
                           public std::enable_shared_from_this<UnaryReactor> {
 public:
  // Lives until gRPC is done with it and the last holder has let go. `context` and `answer` are the call's; `desk` and
  // `calls` outlive the reactor.
  static std::shared_ptr<UnaryReactor> Create(grpc::CallbackServerContext* context, grpc::ByteBuffer* answer,
                                              FrontDesk* desk, Calls* calls);

  // Before gRPC gets to know the reactor.
  void Open(const std::string& request_id, const std::string& server_request_id) override;
  void BeginStep() override {}
  void Send(AnswerEvent event) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Close(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  UnaryReactor(grpc::CallbackServerContext* context, grpc::ByteBuffer* bytes, FrontDesk* desk, Calls* calls)
      : context_(context), bytes_(bytes), desk_(*desk), calls_(*calls) {}

  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone() override ABSL_LOCKS_EXCLUDED(mutex_);

  grpc::ByteBuffer AnswerLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Too much is held for the client. What gRPC has got already can be taken back only with the call.
  void Cut() ABSL_LOCKS_EXCLUDED(mutex_);
  void FinishLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellOver() ABSL_LOCKS_EXCLUDED(mutex_);

  // Constant once gRPC knows the reactor. Context and answer live until OnDone, which comes after Finish.
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const bytes_;
  FrontDesk& desk_;
  Calls& calls_;
  std::string request_id_, server_request_id_;
  std::unique_ptr<OutputBudget::Holding> holding_;

  Mutex mutex_;
  std::shared_ptr<UnaryReactor> self_ ABSL_GUARDED_BY(mutex_);  // keeps the object until OnDone
  Answer answer_ ABSL_GUARDED_BY(mutex_);                    // without its lists, which wait as bytes:
  std::vector<std::string> lists_ ABSL_GUARDED_BY(mutex_);  // of each choice, see TakeLists
  std::string prompt_logprobs_ ABSL_GUARDED_BY(mutex_);
  int64_t answer_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of the events folded so far
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;  // the calls have been told
};

}  // namespace sluice
