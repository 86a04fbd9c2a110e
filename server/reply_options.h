// What the reactors of generation calls are told.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace sluice {

class Metrics;
class OutputBudget;

enum class ClientGone {
  kLeft,        // cancelled, disconnected or out of time
  kNotReading,  // too much output waits for it
  kTooLarge,    // its answer has grown beyond the limit
};

struct ReplyOptions {
  std::string request_id;         // sent as x-request-id
  std::string server_request_id;  // sent as x-server-request-id with the first output
  size_t max_pending_bytes = 0;  // of output that waits for the client; more cuts the stream
  size_t max_answer_bytes = 0;   // of a unary answer; more cuts the call
  std::string peer;              // the client's connection
  OutputBudget* budget = nullptr;  // holds what waits for the client; outlives the reactor
  Metrics* metrics = nullptr;    // outlives the reactor
  // Called at most once, without locks, when the client will get no more: stop working for it.
  std::function<void(ClientGone)> on_gone;
  // Called once, without locks, when all output and the status have been written, or never will be.
  std::function<void()> on_over;
};

}  // namespace sluice
