// What a call asks of the engine, once its request has been read, checked and tokenised.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/request.h"
#include "engine/text/stop_matcher.h"

namespace sluice {

struct Generation {
  std::vector<int32_t> prompt_tokens;  // until it is submitted
  std::string cache_salt;
  SamplingParams sampling;  // of choice 0; choice i uses seed + i
  int32_t num_choices = 1;
  std::vector<std::string> stops;
  StopMatcher stop_matcher;  // of `stops`, at its beginning
  bool include_stop_text = false;
  bool return_token_ids = false;
};

}  // namespace sluice
