// A model description as text, every field of it, one line per run of layers that are alike: for tests that two files
// say the same.
#pragma once

#include <string>

#include "engine/model/spec.h"

namespace sluice::testing {

std::string SpecText(const ModelSpec& spec);

}  // namespace sluice::testing
