// A unary generation call: the events of the same path as a stream's, folded into one answer.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "server/output_budget.h"
#include "server/reply_options.h"
#include "server/reply_sink.h"

namespace sluice {

// Of completions and chats: their answers are the same bytes.
class UnaryReactor final : public grpc::ServerUnaryReactor,
                           public ReplySink,
                           public std::enable_shared_from_this<UnaryReactor> {
 public:
  // Lives until gRPC is done with it and the last holder has let go. `context` and `answer` are the call's.
  static std::shared_ptr<UnaryReactor> Create(grpc::CallbackServerContext* context, grpc::ByteBuffer* answer);

  // Before the first event and before gRPC gets to know the reactor.
  void SetOptions(ReplyOptions options);

  void BeginStep() override {}
  void Send(AnswerEvent event) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Close(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  UnaryReactor(grpc::CallbackServerContext* context, grpc::ByteBuffer* bytes) : context_(context), bytes_(bytes) {}

  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone() override ABSL_LOCKS_EXCLUDED(mutex_);

  grpc::ByteBuffer AnswerLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Too much is held for the client. What gRPC has got already can be had back only with the call.
  void Cut() ABSL_LOCKS_EXCLUDED(mutex_);
  void FinishLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellOver() ABSL_LOCKS_EXCLUDED(mutex_);

  // Constant once gRPC knows the reactor. Context and answer live until OnDone, which comes after Finish.
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const bytes_;
  ReplyOptions options_;
  std::unique_ptr<OutputBudget::Holding> holding_;

  Mutex mutex_;
  std::shared_ptr<UnaryReactor> self_ ABSL_GUARDED_BY(mutex_);  // keeps the object until OnDone
  Answer answer_ ABSL_GUARDED_BY(mutex_);                   // without its lists, which wait as bytes:
  std::vector<std::string> lists_ ABSL_GUARDED_BY(mutex_);  // of each choice, see TakeLists
  std::string prompt_logprobs_ ABSL_GUARDED_BY(mutex_);
  size_t answer_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of the events folded so far
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;  // on_over has been called
};

}  // namespace sluice
