// The state of a served model, in words.
#pragma once

#include <string>

#include "sluice/v1/model.pb.h"

namespace sluice::cli {

// "loading", "ready", "draining" or "failed"; empty for one that this program does not know.
std::string StateName(v1::ModelState state);

// What that means for those who call, as the end of a sentence: "the model is still loading".
std::string StateSentence(v1::ModelState state);

}  // namespace sluice::cli
