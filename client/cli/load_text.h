// What `sluice load` shows of a server.
#pragma once

#include <string>

#include "sluice/v1/admin.pb.h"

namespace sluice::cli {

// One line of at most `columns` columns: the less room there is, the less it tells. A server that is loading or has
// failed says so instead of zeros.
std::string LoadLine(const v1::GetLoadResponse& load, int columns);

// One JSON object on one line.
std::string LoadJson(const v1::GetLoadResponse& load);

}  // namespace sluice::cli
