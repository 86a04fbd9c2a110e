#include "tests/cuda_on_cpu/emulated_device.h"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "tests/cuda_on_cpu/device_memory.h"
#include "tests/cuda_on_cpu/launch.h"

namespace sluice {
namespace {

// The stream is a list of what is to be done. It is done when somebody waits, and no sooner: whoever changes what an
// upload is to read, or reads what a download is to write, before waiting, gets what a slow GPU would give.
class EmulatedDevice : public Device {
 public:
  explicit EmulatedDevice(const EmulatedDeviceOptions& options) : options_(options) { stream_.recording = &enqueued_; }
  ~EmulatedDevice() override { SLUICE_CHECK(sizes_.empty()); }

  std::string Name() const override { return "emulated GPU"; }
  cuda::Stream stream() const override { return reinterpret_cast<cuda::Stream>(&stream_); }
  int32_t num_sms() const override { return options_.num_sms; }
  int64_t FreeBytes() const override { return options_.memory_bytes - used_; }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    CountAllocation();
    if (bytes > FreeBytes()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("device memory: asked for ", bytes, " bytes, ", FreeBytes(), " are free"));
    }
    void* data = cuda_on_cpu::AllocateDevice(static_cast<size_t>(bytes));
    sizes_[data] = bytes;
    Use(bytes);
    return data;
  }
  void Free(void* data) override {
    RunUntil(end());
    const auto it = sizes_.find(data);
    SLUICE_CHECK(it != sizes_.end());
    Use(-it->second);
    sizes_.erase(it);
    cuda_on_cpu::FreeDevice(data);
  }
  absl::StatusOr<void*> AllocatePinned(int64_t bytes) override {
    CountAllocation();
    return ::operator new(static_cast<size_t>(bytes));
  }
  void FreePinned(void* data) override {
    RunUntil(end());
    ::operator delete(data);
  }

  void Upload(void* device, const void* host, int64_t bytes) override { Copy(device, host, bytes); }
  void Download(void* host, const void* device, int64_t bytes) override {
    if (bytes > 0) std::memset(host, 0xff, static_cast<size_t>(bytes));  // NaN, -1: nobody has waited for it
    Copy(host, device, bytes);
  }
  void Zero(void* device, int64_t bytes) override {
    Enqueue([=] { std::memset(device, 0, static_cast<size_t>(bytes)); });
  }

  absl::Status Synchronize() override {
    RunUntil(end());
    return absl::OkStatus();
  }

  struct Place : Event {
    int64_t end = 0;
  };
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override { return std::make_unique<Place>(); }
  void Record(Event* event) override { static_cast<Place*>(event)->end = end(); }
  absl::Status Wait(const Event& event) override {
    RunUntil(static_cast<const Place&>(event).end);
    return absl::OkStatus();
  }

  struct Launches : CapturedGraph {
    explicit Launches(EmulatedDevice* device) : device(device) {}
    ~Launches() override { device->Use(-bytes); }
    EmulatedDevice* const device;
    int64_t bytes = 0;
    cuda_on_cpu::CapturedGraph launches;
  };
  void BeginCapture() override {
    SLUICE_CHECK(recording_ == nullptr);
    recording_ = std::make_unique<Launches>(this);
    stream_.recording = &recording_->launches;
  }
  absl::StatusOr<std::unique_ptr<CapturedGraph>> EndCapture() override {
    stream_.recording = &enqueued_;
    std::unique_ptr<Launches> recording = std::exchange(recording_, nullptr);
    const int64_t bytes = num_recordings_++ < options_.num_free_recordings ? 0 : options_.recording_bytes;
    if (bytes > FreeBytes()) return absl::ResourceExhaustedError("device memory: recording");
    recording->bytes = bytes;
    Use(recording->bytes);
    return recording;
  }
  void Replay(const CapturedGraph& recording) override {
    if (options_.num_replays != nullptr) ++*options_.num_replays;
    for (const auto& launch : static_cast<const Launches&>(recording).launches) Enqueue(launch);
  }

 private:
  void CountAllocation() const {
    if (options_.num_allocations != nullptr) ++*options_.num_allocations;
  }
  void Use(int64_t bytes) {
    used_ += bytes;
    if (options_.bytes_in_use != nullptr) *options_.bytes_in_use = used_;
  }
  void Enqueue(std::function<void()> work) {
    SLUICE_CHECK(recording_ == nullptr);
    enqueued_.push_back(std::move(work));
  }
  void Copy(void* to, const void* from, int64_t bytes) {
    Enqueue([=] {
      if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    });
  }
  // Counted since the device was made.
  int64_t end() const { return num_done_ + static_cast<int64_t>(enqueued_.size()); }
  void RunUntil(int64_t end) {
    SLUICE_CHECK(recording_ == nullptr);
    if (end <= num_done_) return;
    const auto count = static_cast<ptrdiff_t>(end - num_done_);
    for (ptrdiff_t i = 0; i < count; ++i) enqueued_[static_cast<size_t>(i)]();
    enqueued_.erase(enqueued_.begin(), enqueued_.begin() + count);
    num_done_ = end;
    cuda_on_cpu::CheckDeviceMemory(cuda_on_cpu::SourceLine::current());
  }

  const EmulatedDeviceOptions options_;
  mutable cuda_on_cpu::Stream stream_;
  cuda_on_cpu::CapturedGraph enqueued_;
  int64_t num_done_ = 0;
  std::map<void*, int64_t> sizes_;
  int64_t used_ = 0;
  std::unique_ptr<Launches> recording_;
  int32_t num_recordings_ = 0;
};

}  // namespace

std::unique_ptr<Device> NewEmulatedDevice(const EmulatedDeviceOptions& options) {
  return std::make_unique<EmulatedDevice>(options);
}

}  // namespace sluice
