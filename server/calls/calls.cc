#include "server/calls/calls.h"

#include <sys/random.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/status_macros.h"
#include "server/calls/convert.h"
#include "server/calls/prompt.h"
#include "server/calls/status.h"

namespace sluice {
namespace {

// The client's clock began when it sent the call, ours when the call arrived: its reset may come this much before our
// deadline and is that deadline nevertheless.
constexpr int64_t kDeadlineSlackNs = 50'000'000;

// 128 random bits: knowing it is the right to cancel the call.
std::string NewServerRequestId() {
  char bytes[16];
  SLUICE_CHECK(getrandom(bytes, sizeof bytes, 0) == ssize_t(sizeof bytes));
  return absl::StrCat("req-", absl::BytesToHexString(absl::string_view(bytes, sizeof bytes)));
}

// Who a call is, as far as is known before its model is asked. `own_id`: the caller's.
template <class Request>
v1::Started StartedOf(const Request& request, const std::string& own_id, const Origin& origin, std::string model) {
  v1::Started started;
  started.set_server_request_id(NewServerRequestId());
  started.set_request_id(own_id);
  // One that cannot be repeated is none.
  const bool repeatable = internal::CheckRequestId(origin.header_request_id).ok();
  if (own_id.empty() && repeatable) started.set_request_id(origin.header_request_id);
  if (started.request_id().empty()) started.set_request_id(started.server_request_id());
  started.set_model(std::move(model));
  const int64_t now_ns = FrontDesk::NowSinceEpochNs();
  started.mutable_create_time()->set_seconds(now_ns / 1000000000);
  started.mutable_create_time()->set_nanos(int32_t(now_ns % 1000000000));
  *started.mutable_metadata() = request.metadata();
  return started;
}

}  // namespace

template <class Request>
void Calls::Begin(std::shared_ptr<const Request> request, const absl::Status& readable, int64_t memory_bytes,
                  Origin origin, std::shared_ptr<ReplySink> reply) {
  absl::Status status = readable;
  if (status.ok()) status = internal::CheckRequestId(request->request_id());
  const std::string own_id = status.ok() ? request->request_id() : "";
  v1::Started started = StartedOf(*request, own_id, origin, desk_.options.model.names.front());
  reply->Open(started.request_id(), started.server_request_id());
  const auto call =
      std::make_shared<Call>(std::move(started), std::move(origin), own_id, request->user(), std::move(reply));
  if (!status.ok()) return Refuse(call.get(), status);
  const auto model = desk_.ModelForCall();
  status = model.ok() ? (*model)->CheckName(request->model()) : model.status();
  if (status.ok()) status = Add(call);
  if (!status.ok()) return Refuse(call.get(), status);
  const bool has_template = requires { request->messages(); };
  status = desk_.ingress.Post({.peer = call->origin().peer, .bytes = memory_bytes, .by_bytes_alone = !has_template},
                              [this, request, model = *model, call] {
                                const absl::Status submitted = Submit(*request, *model, call.get());
                                if (!submitted.ok()) Refuse(call.get(), submitted);
                              });
  if (!status.ok()) Refuse(call.get(), status);
}

template void Calls::Begin(std::shared_ptr<const v1::CompleteRequest>, const absl::Status&, int64_t, Origin,
                           std::shared_ptr<ReplySink>);
template void Calls::Begin(std::shared_ptr<const v1::ChatRequest>, const absl::Status&, int64_t, Origin,
                           std::shared_ptr<ReplySink>);

template <class Request>
absl::Status Calls::Submit(const Request& request, const ServedModel& model, Call* call) {
  SLUICE_RETURN_IF_ERROR(call->stop_status());
  SLUICE_RETURN_IF_ERROR(CheckEnvelope(request));
  SLUICE_RETURN_IF_ERROR(CheckOptions(request.options(), model));
  SLUICE_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, PromptTokens(request, model));
  SLUICE_ASSIGN_OR_RETURN(Generation generation,
                          ConvertGeneration(request.options(), std::move(tokens), PromptField(request), model));
  generation.cache_salt = request.cache_salt();
  SLUICE_RETURN_IF_ERROR(call->stop_status());
  return call->Submit(std::move(generation), &model.engine(), model.host().tokenizer.get(), &desk_.metrics);
}

void Calls::Refuse(Call* call, const absl::Status& status) {
  desk_.metrics.Observe(call->model(), EndedCall{OutcomeOf(status)});
  End(call, status);
}

void Calls::End(Call* call, const absl::Status& status) {
  // First, so that a client that has seen the end can use the request_id again.
  const std::shared_ptr<Call> removed = Remove(call->id());
  call->Close(status);
}

absl::Status Calls::Cancel(const std::string& peer, const std::string& request_id) {
  if (request_id.empty()) return InvalidField("request_id", "found nothing, expected the id of a call");
  const std::shared_ptr<Call> call = Find(peer, request_id);
  if (call == nullptr) {
    return CallError(absl::StatusCode::kNotFound, kReasonRequestNotFound,
                     absl::StrCat("request_id: no call ", Quoted(request_id),
                                  " of this connection is in progress; from another connection a call is cancelled by "
                                  "its server_request_id"));
  }
  call->Stop(FinishReason::kCancelled,
             CallError(absl::StatusCode::kCancelled, kReasonCancelled, "the call was cancelled by CancelRequest"));
  return absl::OkStatus();
}

void Calls::ClientGone(const std::string& server_request_id, absl::Status why) {
  // Its id can be used again at once.
  const std::shared_ptr<Call> call = Remove(server_request_id);
  if (call == nullptr) return;
  const std::optional<int64_t> deadline_ns = call->origin().deadline_ns;
  const bool late = deadline_ns.has_value() && desk_.clock.NowNs() + kDeadlineSlackNs >= *deadline_ns;
  if (!absl::IsCancelled(why) || !late) return call->Stop(FinishReason::kCancelled, std::move(why));
  call->Stop(FinishReason::kDeadline,
             CallError(absl::StatusCode::kDeadlineExceeded, kReasonDeadline, "the call's deadline has passed"));
}

absl::Status Calls::Add(const std::shared_ptr<Call>& call) {
  MutexLock lock(&mutex_);
  const std::string& key = call->cancel_key();
  if (!key.empty() && !by_cancel_key_.emplace(std::pair(call->origin().peer, key), call).second) {
    return CallError(absl::StatusCode::kAlreadyExists, kReasonRequestIdInUse,
                     absl::StrCat("request_id: ", Quoted(key), " is the id of a call in progress; choose another"));
  }
  by_server_id_.emplace(call->id(), call);
  open_replies_.insert(call->id());
  return absl::OkStatus();
}

std::shared_ptr<Call> Calls::Remove(const std::string& server_request_id) {
  MutexLock lock(&mutex_);
  const auto it = by_server_id_.find(server_request_id);
  if (it == by_server_id_.end()) return nullptr;
  std::shared_ptr<Call> call = std::move(it->second);
  by_server_id_.erase(it);
  if (!call->cancel_key().empty()) by_cancel_key_.erase({call->origin().peer, call->cancel_key()});
  if (empty()) empty_.NotifyAll();
  return call;
}

void Calls::ReplyOver(const std::string& server_request_id) {
  MutexLock lock(&mutex_);
  open_replies_.erase(server_request_id);
  if (empty()) empty_.NotifyAll();
}

std::shared_ptr<Call> Calls::Find(const std::string& peer, const std::string& id) const {
  MutexLock lock(&mutex_);
  if (const auto it = by_cancel_key_.find({peer, id}); it != by_cancel_key_.end()) return it->second;
  if (const auto it = by_server_id_.find(id); it != by_server_id_.end()) return it->second;
  return nullptr;
}

std::vector<std::shared_ptr<Call>> Calls::All() const {
  MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<Call>> calls;
  for (const auto& [id, call] : by_server_id_) calls.push_back(call);
  return calls;
}

bool Calls::WaitUntilEmpty(std::chrono::steady_clock::time_point deadline, const std::function<bool()>& hurry) const {
  MutexLock lock(&mutex_);
  while (!empty()) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline || hurry()) return false;
    empty_.WaitUntil(&mutex_, std::min(deadline, now + std::chrono::milliseconds(20)));
  }
  return true;
}

}  // namespace sluice
