#include "engine/runtime/backend.h"

namespace sluice {

const Backend* CudaBackend() { return nullptr; }

}  // namespace sluice
