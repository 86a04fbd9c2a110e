// Keys of a config.json that nothing here understands.
#pragma once

#include <string>
#include <vector>

#include "engine/model/config_json.h"

namespace sluice {

// Those of config.UnreadKeys() that may change what the model computes: all but the ones known to concern something
// else (training, dropout, file formats, other modalities, generation). To be asked after the spec and the quantisation
// have been read.
std::vector<std::string> UnknownKeys(const ConfigJson& config);

}  // namespace sluice
