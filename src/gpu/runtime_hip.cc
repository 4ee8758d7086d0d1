// The functions of HIP's runtime that this program calls. It is not linked with the library: they open it when the
// first of them is called, so that the program starts, and runs on the CPU, where there is none, and takes no time for
// it where the GPU is not used.
#include <dlfcn.h>
#include <hip/hip_runtime_api.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#define QUIRE_TEXT_OF_EXPANDED(name) #name
#define QUIRE_TEXT_OF(name) QUIRE_TEXT_OF_EXPANDED(name)

namespace {

// The kernels of one source file. The compiler's code registers them before main(), as with the runtime itself.
struct KernelFile {
  struct Kernel {
    const void* of_host;
    char* of_device;
    const char* name;
    unsigned thread_limit;
  };
  const void* code;
  std::vector<Kernel> kernels;
};

class Library {
 public:
  // Never destroyed: kernels are registered before main(), and streams may be given back after it.
  static Library& get() {
    static auto* const library = new Library;
    return *library;
  }

  KernelFile* add(const void* code) {
    files_.push_back(std::make_unique<KernelFile>(KernelFile{code, {}}));
    return files_.back().get();
  }

  const std::string& problem() {
    open();
    return problem_;
  }

  // A function of the library, null without it.
  template <class Function>
  Function runtime(const char* name) {
    open();
    return file_ == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(file_, name));
  }
  // The same for what needs kernels. They are registered no earlier: HIP 5 ends a process whose kernels aren't for all
  // of the machine's cards, so that the cards have to be asked about before.
  template <class Function>
  Function kernels(const char* name) {
    open();
    std::call_once(registered_, [this] {
      if (file_ != nullptr) register_kernels();
    });
    return runtime<Function>(name);
  }

 private:
  void open() {
    std::call_once(opened_, [this] {
      // What the headers describe is the interface of their own major version.
      const std::string name = "libamdhip64.so." QUIRE_TEXT_OF(HIP_VERSION_MAJOR);
      file_ = dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL);
      if (file_ != nullptr) return;
      const char* reason = dlerror();
      problem_ = "HIP's runtime can't be opened: " + (reason != nullptr ? std::string(reason) : name);
    });
  }

  void register_kernels() {
    auto* const add_file = runtime<void** (*)(const void*)>("__hipRegisterFatBinary");
    auto* const add_kernel =
        runtime<void (*)(void**, const void*, char*, const char*, unsigned, void*, void*, void*, void*, int*)>(
            "__hipRegisterFunction");
    if (add_file == nullptr || add_kernel == nullptr) return;  // launches will fail
    for (const auto& file : files_) {
      void** const registered = add_file(file->code);
      for (const KernelFile::Kernel& kernel : file->kernels) {
        add_kernel(registered, kernel.of_host, kernel.of_device, kernel.name, kernel.thread_limit, nullptr, nullptr,
                   nullptr, nullptr, nullptr);
      }
    }
  }

  std::once_flag opened_, registered_;
  void* file_ = nullptr;
  std::string problem_;
  std::vector<std::unique_ptr<KernelFile>> files_;
};

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses, bugprone-reserved-identifier): lists of parameters; the runtime's own names.

// A function of the runtime that hands its arguments on. Without the library it fails. from: a finder of Library.
#define QUIRE_FORWARD(from, name, parameters, arguments)                                              \
  hipError_t name parameters {                                                                        \
    static auto* const function = Library::get().from<hipError_t(*) parameters>(QUIRE_TEXT_OF(name)); \
    return function == nullptr ? hipErrorSharedObjectInitFailed : function arguments;                 \
  }

extern "C" {

QUIRE_FORWARD(runtime, hipGetDeviceCount, (int* count), (count))
QUIRE_FORWARD(runtime, hipDriverGetVersion, (int* version), (version))
QUIRE_FORWARD(runtime, hipGetDeviceProperties, (hipDeviceProp_t * properties, int device), (properties, device))
QUIRE_FORWARD(runtime, hipSetDevice, (int device), (device))
QUIRE_FORWARD(runtime, hipGetLastError, (), ())
QUIRE_FORWARD(runtime, hipMemGetInfo, (size_t * free, size_t* total), (free, total))
QUIRE_FORWARD(runtime, hipMalloc, (void** data, size_t bytes), (data, bytes))
QUIRE_FORWARD(runtime, hipFree, (void* data), (data))
QUIRE_FORWARD(runtime, hipHostMalloc, (void** data, size_t bytes, unsigned flags), (data, bytes, flags))
QUIRE_FORWARD(runtime, hipHostFree, (void* data), (data))
QUIRE_FORWARD(runtime, hipMemcpyAsync,
              (void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream),
              (to, from, bytes, kind, stream))
QUIRE_FORWARD(runtime, hipMemsetAsync, (void* to, int value, size_t bytes, hipStream_t stream),
              (to, value, bytes, stream))
QUIRE_FORWARD(runtime, hipStreamCreateWithFlags, (hipStream_t * stream, unsigned flags), (stream, flags))
QUIRE_FORWARD(runtime, hipStreamDestroy, (hipStream_t stream), (stream))
QUIRE_FORWARD(runtime, hipStreamSynchronize, (hipStream_t stream), (stream))
QUIRE_FORWARD(runtime, hipStreamWaitEvent, (hipStream_t stream, hipEvent_t event, unsigned flags),
              (stream, event, flags))
QUIRE_FORWARD(runtime, hipStreamBeginCapture, (hipStream_t stream, hipStreamCaptureMode mode), (stream, mode))
QUIRE_FORWARD(runtime, hipStreamEndCapture, (hipStream_t stream, hipGraph_t* graph), (stream, graph))
QUIRE_FORWARD(runtime, hipGraphInstantiateWithFlags,
              (hipGraphExec_t * exec, hipGraph_t graph, unsigned long long flags), (exec, graph, flags))
QUIRE_FORWARD(runtime, hipGraphLaunch, (hipGraphExec_t exec, hipStream_t stream), (exec, stream))
QUIRE_FORWARD(runtime, hipGraphDestroy, (hipGraph_t graph), (graph))
QUIRE_FORWARD(runtime, hipGraphExecDestroy, (hipGraphExec_t exec), (exec))
QUIRE_FORWARD(runtime, hipEventCreate, (hipEvent_t * event), (event))
QUIRE_FORWARD(runtime, hipEventDestroy, (hipEvent_t event), (event))
QUIRE_FORWARD(runtime, hipEventRecord, (hipEvent_t event, hipStream_t stream), (event, stream))
QUIRE_FORWARD(runtime, hipEventSynchronize, (hipEvent_t event), (event))
QUIRE_FORWARD(runtime, hipEventElapsedTime, (float* milliseconds, hipEvent_t begin, hipEvent_t end),
              (milliseconds, begin, end))
QUIRE_FORWARD(kernels, hipFuncGetAttributes, (hipFuncAttributes * attributes, const void* kernel), (attributes, kernel))
QUIRE_FORWARD(kernels, hipOccupancyMaxActiveBlocksPerMultiprocessor,
              (int* blocks, const void* kernel, int threads, size_t shared_bytes),
              (blocks, kernel, threads, shared_bytes))
QUIRE_FORWARD(kernels, hipLaunchKernel,
              (const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes, hipStream_t stream),
              (kernel, grid, block, arguments, shared_bytes, stream))
QUIRE_FORWARD(runtime, __hipPushCallConfiguration, (dim3 grid, dim3 block, size_t shared_bytes, hipStream_t stream),
              (grid, block, shared_bytes, stream))
QUIRE_FORWARD(runtime, __hipPopCallConfiguration, (dim3 * grid, dim3* block, size_t* shared_bytes, hipStream_t* stream),
              (grid, block, shared_bytes, stream))

const char* hipGetErrorString(hipError_t error) {
  static auto* const function = Library::get().runtime<const char* (*)(hipError_t)>("hipGetErrorString");
  return function == nullptr ? Library::get().problem().c_str() : function(error);
}

// What the compiler calls before main() for each source file with kernels, and as the process ends.
void** __hipRegisterFatBinary(const void* code) { return reinterpret_cast<void**>(Library::get().add(code)); }
void __hipRegisterFunction(void** file, const void* of_host, char* of_device, const char* name, unsigned thread_limit,
                           void*, void*, void*, void*, int*) {
  reinterpret_cast<KernelFile*>(file)->kernels.push_back({of_host, of_device, name, thread_limit});
}
// The library, opened later than this program's own start, has ended already.
void __hipUnregisterFatBinary(void**) {}
}

// NOLINTEND(bugprone-macro-parentheses, bugprone-reserved-identifier)
