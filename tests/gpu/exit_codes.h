// How the programs of this folder end, apart from 0 and 1.
#pragma once

namespace sluice::cuda_testing {

inline constexpr int kNoGpu = 77;  // there is no GPU that the program could use; it has said why

}  // namespace sluice::cuda_testing
