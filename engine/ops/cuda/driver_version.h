// What is wrong with the driver, in words for whoever installs one.
#pragma once

#include <string>

namespace sluice {

// Versions as cudaDriverGetVersion (0: there is no driver) and cudaRuntimeGetVersion tell them, 1000 * major +
// 10 * minor: "the driver is for CUDA 12.8, expected 13.0: needs NVIDIA driver 580 or newer". The runtime is part of
// this program, whatever toolkit is installed.
std::string DriverTooOld(int driver, int runtime);

}  // namespace sluice
