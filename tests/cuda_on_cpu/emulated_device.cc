#include "tests/cuda_on_cpu/emulated_device.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "tests/cuda_on_cpu/device_memory.h"
#include "tests/cuda_on_cpu/launch.h"

namespace sluice {
namespace {

class EmulatedDevice : public Device {
 public:
  explicit EmulatedDevice(const EmulatedDeviceOptions& options) : options_(options) {}
  ~EmulatedDevice() override { SLUICE_CHECK(sizes_.empty()); }

  std::string Name() const override { return "emulated GPU"; }
  cuda::Stream stream() const override { return reinterpret_cast<cuda::Stream>(&stream_); }
  int32_t num_sms() const override { return options_.num_sms; }
  int64_t FreeBytes() const override { return options_.memory_bytes - used_; }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    if (bytes > FreeBytes()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("device memory: asked for ", bytes, " bytes, ", FreeBytes(), " are free"));
    }
    void* data = cuda_on_cpu::AllocateDevice(static_cast<size_t>(bytes));
    sizes_[data] = bytes;
    used_ += bytes;
    return data;
  }
  void Free(void* data) override {
    const auto it = sizes_.find(data);
    SLUICE_CHECK(it != sizes_.end());
    used_ -= it->second;
    sizes_.erase(it);
    cuda_on_cpu::FreeDevice(data);
  }
  absl::StatusOr<void*> AllocatePinned(int64_t bytes) override { return ::operator new(static_cast<size_t>(bytes)); }
  void FreePinned(void* data) override { ::operator delete(data); }

  void Upload(void* device, const void* host, int64_t bytes) override { Copy(device, host, bytes); }
  void Download(void* host, const void* device, int64_t bytes) override { Copy(host, device, bytes); }
  void Zero(void* device, int64_t bytes) override {
    SLUICE_CHECK(stream_.recording == nullptr);
    std::memset(device, 0, static_cast<size_t>(bytes));
  }

  absl::Status Synchronize() override {
    SLUICE_CHECK(stream_.recording == nullptr);
    cuda_on_cpu::CheckDeviceMemory(cuda_on_cpu::SourceLine::current());
    return absl::OkStatus();
  }

  struct Launches : Recording {
    cuda_on_cpu::Recording launches;
  };
  void BeginRecording() override {
    SLUICE_CHECK(stream_.recording == nullptr);
    recording_ = std::make_unique<Launches>();
    stream_.recording = &recording_->launches;
  }
  absl::StatusOr<std::unique_ptr<Recording>> EndRecording() override {
    stream_.recording = nullptr;
    return std::move(recording_);
  }
  void Replay(const Recording& recording) override {
    if (options_.num_replays != nullptr) ++*options_.num_replays;
    for (const auto& launch : static_cast<const Launches&>(recording).launches) launch();
  }

 private:
  void Copy(void* to, const void* from, int64_t bytes) {
    SLUICE_CHECK(stream_.recording == nullptr);
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  const EmulatedDeviceOptions options_;
  mutable cuda_on_cpu::Stream stream_;
  std::map<void*, int64_t> sizes_;
  int64_t used_ = 0;
  std::unique_ptr<Launches> recording_;
};

}  // namespace

std::unique_ptr<Device> NewEmulatedDevice(const EmulatedDeviceOptions& options) {
  return std::make_unique<EmulatedDevice>(options);
}

}  // namespace sluice
