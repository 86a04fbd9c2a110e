#include "server/answer_bytes.h"

#include <utility>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"

namespace sluice {
namespace {

using google::protobuf::internal::WireFormatLite;

// What stands before a field that is a message of `size` bytes, and the first of these bytes.
std::string Head(int number, size_t size, const std::string& first = "") {
  std::string head;
  {
    google::protobuf::io::StringOutputStream stream(&head);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.WriteTag(WireFormatLite::MakeTag(number, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
    out.WriteVarint64(size);
    out.WriteString(first);
  }
  return head;
}

}  // namespace

// What TakeLists returns is put into a Choice, too.
static_assert(int(v1::Delta::kTokenIdsFieldNumber) == int(v1::Choice::kTokenIdsFieldNumber));
static_assert(int(v1::Delta::kLogprobsFieldNumber) == int(v1::Choice::kLogprobsFieldNumber));

void AnswerBytes::Append(std::string fields) {
  if (fields.empty()) return;
  auto* const owned = new std::string(std::move(fields));
  slices_.emplace_back(
      owned->data(), owned->size(), [](void* text) { delete static_cast<std::string*>(text); }, owned);
}

void AnswerBytes::AppendMessage(int number, const std::string& first, std::string rest) {
  Append(Head(number, first.size() + rest.size(), first));
  Append(std::move(rest));
}

void AnswerBytes::Wrap(int number) {
  size_t size = 0;
  for (const grpc::Slice& slice : slices_) size += slice.size();
  slices_.insert(slices_.begin(), grpc::Slice(Head(number, size)));
}

grpc::ByteBuffer AnswerBytes::Take() {
  const std::vector<grpc::Slice> slices = std::exchange(slices_, {});
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string TakeLists(v1::Delta* delta) {
  if (delta->token_ids().empty() && delta->logprobs().empty() && delta->prompt_logprobs().empty()) return "";
  v1::Delta lists;
  lists.mutable_token_ids()->Swap(delta->mutable_token_ids());
  lists.mutable_logprobs()->Swap(delta->mutable_logprobs());
  lists.mutable_prompt_logprobs()->Swap(delta->mutable_prompt_logprobs());
  return lists.SerializeAsString();
}

std::string TakePromptLogprobs(v1::Delta* delta) {
  if (delta->prompt_logprobs().empty()) return "";
  Answer part;
  part.mutable_prompt_logprobs()->Swap(delta->mutable_prompt_logprobs());
  return part.SerializeAsString();
}

}  // namespace sluice
