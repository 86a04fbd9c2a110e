// A model that answers calls: its facts, its engine, and the threads before and after the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/engine.h"
#include "server/calls/delivery.h"
#include "server/calls/model_host.h"
#include "server/metrics.h"

namespace sluice {

class Calls;

// NOT_FOUND unless `name`, the `model` field of a request, is empty or one of `names`.
absl::Status CheckModelName(const std::string& name, const std::vector<std::string>& names);

class ServedModel {
 public:
  // `names`: the model's id, then aliases. `max_logprobs` -1: the whole vocabulary. The pointers outlive the object.
  // INVALID_ARGUMENT: the engine's options make no sense.
  static absl::StatusOr<std::unique_ptr<ServedModel>> Create(ModelHost host, std::vector<std::string> names,
                                                             int32_t max_logprobs, Calls* calls,
                                                             Metrics* metrics, const Clock& clock);
  ~ServedModel();

  const ModelHost& host() const { return host_; }
  const std::vector<std::string>& names() const { return names_; }
  const std::string& id() const { return names_.front(); }
  int32_t max_logprobs() const { return max_logprobs_; }
  Engine& engine() const { return *engine_; }
  const Delivery& delivery() const { return delivery_; }

  // The largest number of bytes that one token stands for, if every text can be written in tokens (so that a text of
  // more than max_model_len times as many bytes cannot fit); 0 if nothing can be said.
  int64_t max_token_bytes() const { return max_token_bytes_; }

  // See CheckModelName.
  absl::Status CheckName(const std::string& name) const { return CheckModelName(name, names_); }

  // The engine does not come back from a step: ends the calls that it holds without it (Delivery::Abandon). Thread-safe.
  void AbandonCalls(absl::Status status) { delivery_.Abandon(std::move(status)); }

  // Ends every sequence and both threads. Idempotent. Waits for the step that is running, however long.
  void Stop();

 private:
  ServedModel(ModelHost host, std::vector<std::string> names, int32_t max_logprobs, Calls* calls,
              Metrics* metrics, const Clock& clock);

  ModelHost host_;  // without its runner, which the engine has
  const std::vector<std::string> names_;
  const int32_t max_logprobs_;
  const int64_t max_token_bytes_;
  Delivery delivery_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace sluice
