// Requests as they come over the wire, checked and converted to what the engine takes. Errors name the field.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/status_macros.h"
#include "server/calls/generation.h"
#include "server/calls/served_model.h"
#include "server/calls/status.h"
#include "sluice/v1/generation.pb.h"
#include "sluice/v1/model.pb.h"

namespace sluice {

inline constexpr int32_t kMaxChoices = 16;
inline constexpr int kMaxStops = 16;
inline constexpr int kMaxStopTokenIds = 64;
inline constexpr int kMaxLogitBias = 1024;
inline constexpr int kMaxAllowedTokenIds = 4096;

// The fields around a generation request that are the same in all four of its forms.
template <class Request>
absl::Status CheckEnvelope(const Request& request);

// The options of a request whose field `prompt_field` has become `prompt_tokens`, which it takes. Choice 0's
// parameters, every field resolved: request, else model, else the documented default. An unset seed is drawn at random.
// INVALID_ARGUMENT also when the prompt is empty or leaves no room in the context or the KV pool.
absl::StatusOr<Generation> ConvertGeneration(const v1::GenerateOptions& options, std::vector<int32_t> prompt_tokens,
                                             absl::string_view prompt_field, const ServedModel& model);

// The checks of `options` that need no prompt, so that a bad field is told before a long text is tokenised. Here it is
// seen that they have the form of a request and can be converted; which values make sense, ValidateSampling says.
absl::Status CheckOptions(const v1::GenerateOptions& options, const ServedModel& model);

// What unset sampling fields become for this model.
v1::SamplingDefaults ResolvedDefaults(const GenerationDefaults& defaults);

// Ids of a request as the engine's. INVALID_ARGUMENT names `field` and the index of an id outside the vocabulary.
absl::StatusOr<std::vector<int32_t>> ConvertTokenIds(absl::string_view field,
                                                     const google::protobuf::RepeatedField<uint32_t>& ids,
                                                     int32_t vocab_size);

namespace internal {
absl::Status CheckRequestId(const std::string& request_id);
absl::Status CheckCacheSalt(const std::string& cache_salt);
absl::Status CheckLabels(const std::string& user, const google::protobuf::Map<std::string, std::string>& metadata);
}  // namespace internal

template <class Request>
absl::Status CheckEnvelope(const Request& request) {
  if (request.has_priority()) return UnimplementedField("priority");
  SLUICE_RETURN_IF_ERROR(internal::CheckCacheSalt(request.cache_salt()));
  return internal::CheckLabels(request.user(), request.metadata());
}

}  // namespace sluice
