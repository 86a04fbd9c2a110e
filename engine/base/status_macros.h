// Early returns on absl::Status, the error type of everything that the world (files, requests, limits) can cause.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Evaluates `expr` (a Status); returns it from the enclosing function unless it is OK.
#define SLUICE_RETURN_IF_ERROR(expr)                                                    \
  do {                                                                                  \
    if (absl::Status sluice_status = (expr); !sluice_status.ok()) return sluice_status; \
  } while (false)

#define SLUICE_CONCAT_INNER(a, b) a##b
#define SLUICE_CONCAT(a, b) SLUICE_CONCAT_INNER(a, b)
#define SLUICE_ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                                  \
  if (!tmp.ok()) return std::move(tmp).status();      \
  lhs = std::move(tmp).value()

// `lhs = value of expr` (a StatusOr), or returns its status. `lhs` may declare a variable. Not usable as a single
// statement under an `if` without braces.
#define SLUICE_ASSIGN_OR_RETURN(lhs, expr) \
  SLUICE_ASSIGN_OR_RETURN_INNER(SLUICE_CONCAT(sluice_statusor_, __LINE__), lhs, expr)
