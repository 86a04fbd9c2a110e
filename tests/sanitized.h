// Whether this build is sanitized. Its code is ten to a hundred times slower, so a test that is long may ask for less
// there: fewer cases or smaller ones, never fewer kinds of checks.
#pragma once

#include <cstddef>  // any header of the standard library: it defines _GLIBCXX_TSAN

namespace sluice {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(_GLIBCXX_TSAN)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace sluice
