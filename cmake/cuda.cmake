# Optional: the GPU sources for CUDA. The runtime is linked statically, so the program starts where there is no CUDA.
option(QUIRE_CUDA "build for CUDA devices too" OFF)
set(QUIRE_CUDA_ARCHITECTURES "80-real;90a-real" CACHE STRING "as CMAKE_CUDA_ARCHITECTURES")
if(QUIRE_CUDA)
  foreach(architecture ${QUIRE_CUDA_ARCHITECTURES})
    if(NOT architecture MATCHES "-real$")
      message(FATAL_ERROR "QUIRE_CUDA_ARCHITECTURES ${architecture}: write ${architecture}-real. Kernels are launched by what the card can do, so they "
        "must not be made for it from the code of an older one.")
    endif()
  endforeach()
  set(CMAKE_CUDA_ARCHITECTURES ${QUIRE_CUDA_ARCHITECTURES})
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  enable_language(CUDA)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # CMake 3.25.1 doesn't know that nvcc has it
  find_package(CUDAToolkit REQUIRED)
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
endif()
