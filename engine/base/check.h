// CHECK for our own bugs: prints the condition, file and line to stderr and aborts. Whatever the world can cause is an
// absl::Status instead (status_macros.h).
#pragma once

namespace sluice {

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace sluice

#define SLUICE_CHECK(condition) \
  (__builtin_expect(!!(condition), 1) ? (void)0 : ::sluice::CheckFailed(#condition, __FILE__, __LINE__))

#ifdef NDEBUG
#define SLUICE_DCHECK(condition) ((void)sizeof(condition))
#else
#define SLUICE_DCHECK(condition) SLUICE_CHECK(condition)
#endif
