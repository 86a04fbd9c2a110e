// CUDA's atomic functions. As on the device they order no other memory: a thread that publishes values by an atomic,
// and one that reads values because of an atomic, both need a __threadfence() between the two (ThreadSanitizer says
// so).
#pragma once

#include <atomic>
#include <type_traits>

namespace sluice::cuda_on_cpu {

// Replaces *address by change(*address) and returns what was there.
template <class T>
T Update(T* address, auto&& change) {
  std::atomic_ref<T> cell(*address);
  T old = cell.load(std::memory_order_relaxed);
  while (!cell.compare_exchange_weak(old, change(old), std::memory_order_relaxed)) {
  }
  return old;
}

}  // namespace sluice::cuda_on_cpu

template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return ::sluice::cuda_on_cpu::Update(address, [&](T old) { return static_cast<T>(old + value); });
}
template <class T>
T atomicSub(T* address, std::type_identity_t<T> value) {
  return ::sluice::cuda_on_cpu::Update(address, [&](T old) { return static_cast<T>(old - value); });
}
template <class T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return ::sluice::cuda_on_cpu::Update(address, [&](T old) { return value < old ? value : old; });
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return ::sluice::cuda_on_cpu::Update(address, [&](T old) { return old < value ? value : old; });
}
template <class T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
  return ::sluice::cuda_on_cpu::Update(address, [&](T old) { return old & value; });
}
template <class T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return ::sluice::cuda_on_cpu::Update(address, [&](T old) { return old | value; });
}
template <class T>
T atomicXor(T* address, std::type_identity_t<T> value) {
  return ::sluice::cuda_on_cpu::Update(address, [&](T old) { return old ^ value; });
}
template <class T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).exchange(value, std::memory_order_relaxed);
}
template <class T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  std::atomic_ref<T>(*address).compare_exchange_strong(expected, value, std::memory_order_relaxed);
  return expected;
}
inline unsigned atomicInc(unsigned* address, unsigned last) {
  return ::sluice::cuda_on_cpu::Update(address, [&](unsigned old) { return old >= last ? 0 : old + 1; });
}
inline unsigned atomicDec(unsigned* address, unsigned last) {
  return ::sluice::cuda_on_cpu::Update(address, [&](unsigned old) { return old == 0 || old > last ? last : old - 1; });
}
