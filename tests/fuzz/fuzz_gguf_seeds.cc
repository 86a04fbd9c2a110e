// Good GGUF files to start fuzzing from: every metadata type, every tensor type, small and large alignments.
#include <cstdio>
#include <string>
#include <vector>

#include "engine/base/tensor_format.h"
#include "tests/io/gguf_writer.h"

namespace sluice {
namespace {

void AddEveryKind(GgufWriter* w) {
  w->AddU8("a", 1);
  w->AddI8("b", -1);
  w->AddU16("c", 2);
  w->AddI16("d", -2);
  w->AddU32("e", 3);
  w->AddI32("f", -3);
  w->AddF32("g", 0.5f);
  w->AddBool("h", true);
  w->AddString("i", "text");
  w->AddU64("j", 4);
  w->AddI64("k", -4);
  w->AddF64("l", 0.25);
  w->AddStrings("m", {"one", "", "three"});
  w->AddFloats("n", {1, 2, 3});
  w->AddI32s("o", {1, 2, 3, 4});
  w->AddU32s("p", {5, 6});
}

void AddTensor(GgufWriter* w, TensorType type, int64_t rows) {
  const TensorTypeInfo& info = GetTensorTypeInfo(type);
  const std::vector<uint8_t> data(TensorBytes(type, rows * info.block_elems), 0x35);
  w->AddTensor(info.name, type, {rows, info.block_elems}, data);
}

void WriteSeeds(const std::string& folder) {
  GgufWriter empty;
  empty.WriteTo(folder + "/empty");
  GgufWriter keys;
  AddEveryKind(&keys);
  keys.WriteTo(folder + "/keys");
  for (const TensorFormat& row : kTensorFormats) {
    if (row.gguf_id < 0) continue;
    GgufWriter one;
    AddTensor(&one, row.type, 2);
    one.WriteTo(folder + "/" + row.stored.name);
  }
  GgufWriter both;
  both.version = 2;
  both.SetAlignment(8);
  AddEveryKind(&both);
  AddTensor(&both, TensorType::kF32, 8);
  AddTensor(&both, TensorType::kQ8_0, 1);
  both.WriteTo(folder + "/both");
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_gguf_seeds FOLDER\n");
    return 2;
  }
  sluice::WriteSeeds(argv[1]);
  return 0;
}
