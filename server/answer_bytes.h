// Output on its way to a client, in the form in which it waits: as it goes over the wire. A log-probability takes six
// times as much as an object.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <string>
#include <vector>

#include "proto/answer.h"

namespace sluice {

// A message put together from pieces of its wire format: fields one after the other, in any order. What is appended is
// moved, not copied.
class AnswerBytes {
 public:
  // Whole fields.
  void Append(std::string fields);
  // The field `number`, which is a message: its fields are `first` and then `rest`.
  void AppendMessage(int number, const std::string& first, std::string rest);
  // All that is there becomes the one field `number`, which is a message.
  void Wrap(int number);
  // Empty again afterwards.
  grpc::ByteBuffer Take();

 private:
  std::vector<grpc::Slice> slices_;
};

// Takes token ids and log-probabilities out of `delta`: the fields that an event has beside its index and text.
std::string TakeLists(v1::Delta* delta);

// Takes the prompt's log-probabilities out of `delta`, as the field of the same name of an Answer.
std::string TakePromptLogprobs(v1::Delta* delta);

}  // namespace sluice
