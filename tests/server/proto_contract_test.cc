// The contract as data: what must hold of the proto files themselves.
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sluice/v1/admin.pb.h"
#include "sluice/v1/generation.pb.h"
#include "sluice/v1/model.pb.h"
#include "sluice/v1/tokenizer.pb.h"

namespace sluice {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

std::string Describe(const FieldDescriptor& field) {
  std::string type = field.cpp_type_name();
  if (field.message_type() != nullptr) type = field.message_type()->full_name();
  // Map entries are messages of their own in each request.
  if (field.is_map()) type = "map";
  return field.name() + " = " + std::to_string(field.number()) + " " + type + (field.is_repeated() ? " repeated" : "") +
         (field.has_optional_keyword() ? " optional" : "");
}

std::vector<std::string> Fields(const Descriptor* message) {
  std::vector<std::string> fields;
  for (int i = 0; i < message->field_count(); ++i) fields.push_back(Describe(*message->field(i)));
  return fields;
}

TEST(ProtoContract, StreamAndUnaryFormsTakeTheSameFields) {
  EXPECT_EQ(Fields(v1::CompleteRequest::descriptor()), Fields(v1::StreamCompleteRequest::descriptor()));
  EXPECT_EQ(Fields(v1::ChatRequest::descriptor()), Fields(v1::StreamChatRequest::descriptor()));
  EXPECT_EQ(Fields(v1::CompleteResponse::descriptor()), Fields(v1::ChatResponse::descriptor()));
  EXPECT_EQ(Fields(v1::StreamCompleteResponse::descriptor()), Fields(v1::StreamChatResponse::descriptor()));
}

TEST(ProtoContract, ScalarOptionsWhereZeroMeansSomethingAreOptional) {
  const Descriptor* options = v1::GenerateOptions::descriptor();
  for (int i = 0; i < options->field_count(); ++i) {
    const FieldDescriptor& field = *options->field(i);
    const bool number = field.cpp_type() != FieldDescriptor::CPPTYPE_BOOL &&
                        field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE &&
                        field.cpp_type() != FieldDescriptor::CPPTYPE_STRING;
    EXPECT_TRUE(!number || field.is_repeated() || field.has_optional_keyword()) << field.full_name();
  }
}

TEST(ProtoContract, EveryFileNamesItsPackageInEveryLanguage) {
  for (const FileDescriptor* file : {v1::CompleteRequest::descriptor()->file(),
                                     v1::TokenizeRequest::descriptor()->file(), v1::Model::descriptor()->file(),
                                     v1::GetLoadRequest::descriptor()->file(), v1::ChatMessage::descriptor()->file()}) {
    EXPECT_EQ(file->package(), "sluice.v1");
    EXPECT_NE(file->options().go_package(), "") << file->name();
    EXPECT_NE(file->options().java_package(), "") << file->name();
    EXPECT_NE(file->options().csharp_namespace(), "") << file->name();
  }
}

}  // namespace
}  // namespace sluice
