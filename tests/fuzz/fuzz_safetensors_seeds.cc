// Good safetensors files and an index to start fuzzing from.
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "engine/base/tensor_format.h"
#include "tests/io/safetensors_writer.h"

namespace sluice {
namespace {

void WriteText(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

void WriteSeeds(const std::string& folder) {
  SafetensorsWriter empty;
  empty.WriteTo(folder + "/empty");
  SafetensorsWriter every;
  for (const TensorFormat& row : kTensorFormats) {
    if (!row.in_safetensors) continue;
    const std::vector<uint8_t> data(size_t(TensorBytes(row.type, 8)), 0x35);
    every.AddTensor(row.stored.name, row.type, {2, 4}, data);
    SafetensorsWriter one;
    one.AddTensor("t", row.type, {2, 4}, data);
    one.WriteTo(folder + "/" + row.stored.name);
  }
  every.AddTensor("none", TensorType::kF32, {0, 3}, {});
  every.WriteTo(folder + "/every");
  WriteText(folder + "/metadata",
            SafetensorsBytes(
                R"({"__metadata__":{"format":"pt","a":""},"t":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", "x"));
  WriteText(
      folder + "/index",
      R"({"metadata":{"total_size":3,"a":"b","c":null,"d":1.5},"weight_map":{"x":"1.safetensors","y":"2.safetensors"}})");
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_safetensors_seeds FOLDER\n");
    return 2;
  }
  sluice::WriteSeeds(argv[1]);
  return 0;
}
