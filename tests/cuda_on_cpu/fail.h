// What the emulation says when a kernel breaks a rule of the machine: one line on stderr, then abort.
#pragma once

#include <source_location>

namespace sluice::cuda_on_cpu {

// The line of the kernel that called; every emulated function takes its own as a defaulted last argument.
using SourceLine = std::source_location;

// Prints "cuda_on_cpu: WHAT at FILE:LINE (block x,y,z thread N)" and aborts.
[[noreturn]] void Fail(const char* what, const SourceLine& where);

inline void Require(bool holds, const char* otherwise, const SourceLine& where) {
  if (!holds) [[unlikely]]
    Fail(otherwise, where);
}

}  // namespace sluice::cuda_on_cpu

// The last parameter of every emulated function of CUDA.
#define SLUICE_HERE ::sluice::cuda_on_cpu::SourceLine here = ::sluice::cuda_on_cpu::SourceLine::current()
