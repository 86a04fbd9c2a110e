// Puts the events of a stream together again.
#pragma once

#include <map>
#include <vector>

#include "client/cpp/client.h"

namespace sluice::client {

// What a unary call would have answered; choices by index.
struct Generation {
  v1::Started started;
  std::vector<v1::Choice> choices;
  std::vector<v1::PositionLogprobs> prompt_logprobs;
  v1::Usage usage;
  v1::Timings timings;
};

// Feed it every event in order; not thread-safe.
class GenerationBuilder {
 public:
  void Add(const v1::Started& event);
  void Add(const v1::Delta& event);
  void Add(const v1::ChoiceFinished& event);
  void Add(const v1::Completed& event);
  Generation Take() &&;

 private:
  v1::Choice& ChoiceAt(uint32_t index);
  Generation generation_;
  std::map<uint32_t, v1::Choice> choices_;
};

// The unary answers in the same form.
Generation FromResponse(const v1::CompleteResponse& response);
Generation FromResponse(const v1::ChatResponse& response);

}  // namespace sluice::client
