// Tables with an entry for each tensor type, such as the instances of a function template.
#pragma once

#include <utility>

#include "engine/base/tensor_type.h"

namespace sluice {

template <class T>
struct ByTensorType {
  T entries[kNumTensorTypes];
  constexpr const T& operator[](TensorType type) const { return entries[static_cast<int>(type)]; }
};

template <class T, class Entry, int... types>
constexpr ByTensorType<T> MakeByTensorType(const Entry& entry, std::integer_sequence<int, types...>) {
  return {{entry.template operator()<static_cast<TensorType>(types)>()...}};
}

// entry<type>() of each type.
template <class T, class Entry>
constexpr ByTensorType<T> MakeByTensorType(const Entry& entry) {
  return MakeByTensorType<T>(entry, std::make_integer_sequence<int, kNumTensorTypes>());
}

}  // namespace sluice
