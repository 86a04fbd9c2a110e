#include "engine/ops/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/ops/cuda/driver_version.h"

namespace sluice {
namespace {

constexpr int kLowestMajor = 8;  // sm_80: bf16 mma and cp.async

absl::Status ToStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("CUDA: ", what, ": ", cudaGetErrorString(error)));
}

// Why there is no GPU, after cudaGetDeviceCount.
std::string WhyNone(cudaError_t found) {
  if (found == cudaSuccess) return "the driver reports none";
  std::string why = cudaGetErrorString(found);
  int driver = 0, runtime = 0;
  if (found == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess &&
      cudaRuntimeGetVersion(&runtime) == cudaSuccess) {
    absl::StrAppend(&why, " (", DriverTooOld(driver, runtime), ")");
  }
  return why;
}

class CudaDevice : public Device {
 public:
  CudaDevice(const cudaDeviceProp& properties, cudaStream_t stream)
      : name_(properties.name), num_sms_(properties.multiProcessorCount), stream_(stream) {}
  ~CudaDevice() override { cudaStreamDestroy(stream_); }

  std::string Name() const override { return name_; }
  cuda::Stream stream() const override { return stream_; }
  int32_t num_sms() const override { return num_sms_; }
  int64_t FreeBytes() const override {
    size_t free = 0, total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<int64_t>(free) : 0;
  }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes > 0 ? bytes : 1));
    if (error == cudaSuccess) return data;
    cudaGetLastError();  // an allocation that failed leaves the device whole
    if (error != cudaErrorMemoryAllocation) return ToStatus(error, "cudaMalloc");
    return absl::ResourceExhaustedError(
        absl::StrCat("device memory: asked for ", bytes, " bytes, ", FreeBytes(), " are free"));
  }
  void Free(void* data) override {
    cudaStreamSynchronize(stream_);
    cudaFree(data);
  }
  absl::StatusOr<void*> AllocatePinned(int64_t bytes) override {
    void* data = nullptr;
    const cudaError_t error = cudaMallocHost(&data, static_cast<size_t>(bytes > 0 ? bytes : 1));
    if (error == cudaSuccess) return data;
    cudaGetLastError();
    return absl::ResourceExhaustedError(
        absl::StrCat("pinned host memory: asked for ", bytes, " bytes: ", cudaGetErrorString(error)));
  }
  void FreePinned(void* data) override { cudaFreeHost(data); }

  void Upload(void* device, const void* host, int64_t bytes) override {
    Note(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_), "copy to device");
  }
  void Download(void* host, const void* device, int64_t bytes) override {
    Note(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream_),
         "copy from device");
  }
  void Zero(void* device, int64_t bytes) override {
    Note(cudaMemsetAsync(device, 0, static_cast<size_t>(bytes), stream_), "memset");
  }

  absl::Status Synchronize() override {
    Note(cudaGetLastError(), "launch");
    Note(cudaStreamSynchronize(stream_), "step");
    return std::exchange(fault_, absl::OkStatus());
  }

  class StreamEvent : public Event {
   public:
    explicit StreamEvent(cudaEvent_t event) : event_(event) {}
    ~StreamEvent() override { cudaEventDestroy(event_); }
    cudaEvent_t get() const { return event_; }

   private:
    const cudaEvent_t event_;
  };

  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override {
    cudaEvent_t event = nullptr;
    SLUICE_RETURN_IF_ERROR(ToStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "create event"));
    return std::make_unique<StreamEvent>(event);
  }
  void Record(Event* event) override {
    Note(cudaEventRecord(static_cast<StreamEvent*>(event)->get(), stream_), "record event");
  }
  absl::Status Wait(const Event& event) override {
    Note(cudaGetLastError(), "launch");
    Note(cudaEventSynchronize(static_cast<const StreamEvent&>(event).get()), "step");
    return std::exchange(fault_, absl::OkStatus());
  }

  class Graph : public CapturedGraph {
   public:
    explicit Graph(cudaGraphExec_t graph) : graph_(graph) {}
    ~Graph() override { cudaGraphExecDestroy(graph_); }
    cudaGraphExec_t get() const { return graph_; }

   private:
    const cudaGraphExec_t graph_;
  };

  void BeginCapture() override {
    Note(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin capture");
  }
  absl::StatusOr<std::unique_ptr<CapturedGraph>> EndCapture() override {
    cudaGraph_t graph = nullptr;
    SLUICE_RETURN_IF_ERROR(ToStatus(cudaStreamEndCapture(stream_, &graph), "end capture"));
    cudaGraphExec_t executable = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    SLUICE_RETURN_IF_ERROR(OfCapture(error, "instantiate graph"));
    auto captured = std::make_unique<Graph>(executable);
    // Else the first launch would.
    SLUICE_RETURN_IF_ERROR(OfCapture(cudaGraphUpload(executable, stream_), "upload graph"));
    return captured;
  }
  void Replay(const CapturedGraph& graph) override {
    Note(cudaGraphLaunch(static_cast<const Graph&>(graph).get(), stream_), "launch graph");
  }

 private:
  static absl::Status OfCapture(cudaError_t error, const char* what) {
    if (error != cudaErrorMemoryAllocation) return ToStatus(error, what);
    cudaGetLastError();
    return absl::ResourceExhaustedError(absl::StrCat("device memory: ", what, ": ", cudaGetErrorString(error)));
  }
  // Keeps the first fault for the next Synchronize.
  void Note(cudaError_t error, const char* what) {
    if (fault_.ok()) fault_ = ToStatus(error, what);
  }

  const std::string name_;
  const int32_t num_sms_;
  const cudaStream_t stream_;
  absl::Status fault_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice(int32_t ordinal) {
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found != cudaSuccess || count == 0) {
    cudaGetLastError();
    return absl::FailedPreconditionError(absl::StrCat("no GPU: ", WhyNone(found)));
  }
  if (ordinal < 0 || ordinal >= count) {
    return absl::FailedPreconditionError(absl::StrCat("no GPU ", ordinal, " among ", count));
  }
  cudaDeviceProp properties;
  SLUICE_RETURN_IF_ERROR(ToStatus(cudaGetDeviceProperties(&properties, ordinal), "device properties"));
  if (properties.major < kLowestMajor) {
    return absl::FailedPreconditionError(absl::StrCat("GPU ", properties.name, " is sm_", properties.major,
                                                      properties.minor, ", expected sm_80 or newer"));
  }
  SLUICE_RETURN_IF_ERROR(ToStatus(cudaSetDevice(ordinal), "set device"));
  cudaStream_t stream = nullptr;
  SLUICE_RETURN_IF_ERROR(ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create stream"));
  return std::make_unique<CudaDevice>(properties, stream);
}

}  // namespace sluice
