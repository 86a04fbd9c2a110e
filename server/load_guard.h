// A model's file that shrinks while it is being read.
#pragma once

#include <csignal>

namespace sluice {

// While it lives, a page of a mapped file that cannot be read (the file was truncated, or its disk fails) ends the
// process with exit code 1 and a sentence on stderr instead of a bare SIGBUS. For the time in which a model is loaded:
// afterwards nothing is mapped. The handler is the whole process's; one guard at a time.
class LoadGuard {
 public:
  LoadGuard();
  ~LoadGuard();
  LoadGuard(const LoadGuard&) = delete;
  LoadGuard& operator=(const LoadGuard&) = delete;

 private:
  struct sigaction before_ = {};
};

}  // namespace sluice
