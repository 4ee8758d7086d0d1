# Optional: the GPU sources for AMD's cards. They are compiled by clang with HIP, everything else by the compiler of the host, as with CUDA.
# (CMake's own language HIP wants a ROCm that is laid out as in /opt/rocm; Debian's isn't.)
option(QUIRE_HIP "build for AMD's GPUs too" OFF)
set(QUIRE_HIP_ARCHITECTURES "gfx90a;gfx942" CACHE STRING "names of AMD's architectures")
if(QUIRE_HIP)
  if(QUIRE_CUDA)
    message(FATAL_ERROR "QUIRE_CUDA and QUIRE_HIP: a program has kernels of one vendor")
  endif()
  find_path(QUIRE_HIP_INCLUDE hip/hip_runtime_api.h HINTS /opt/rocm/include REQUIRED)
  cmake_path(GET QUIRE_HIP_INCLUDE PARENT_PATH QUIRE_HIP_ROOT)
  find_program(QUIRE_HIP_COMPILER NAMES clang++-19 clang++ NAMES_PER_DIR HINTS ${QUIRE_HIP_ROOT}/llvm/bin REQUIRED)
  find_program(QUIRE_HIP_BUNDLER NAMES clang-offload-bundler-19 clang-offload-bundler NAMES_PER_DIR HINTS ${QUIRE_HIP_ROOT}/llvm/bin REQUIRED)
  # Not errors: what HIP's own threadIdx makes of a comparison, how many waves fit, what one vendor's code alone uses.
  set(quire_hip_flags -x hip -D__HIP_PLATFORM_AMD__ -std=c++20 -O3 -DNDEBUG -fPIE -I${PROJECT_SOURCE_DIR}/src --rocm-path=${QUIRE_HIP_ROOT}
    -Wall -Wextra -Wno-sign-compare -Wno-pass-failed -Wno-unused-const-variable $<$<BOOL:${QUIRE_WERROR}>:-Werror>)

  add_custom_target(hip_code)

  # The device libraries of HIP 5.2 know gfx940, not its successor: what they say of the one, with its number, is true of the other.
  set(quire_bitcode ${QUIRE_HIP_ROOT}/lib/x86_64-linux-gnu/amdgcn/bitcode)
  if(EXISTS ${quire_bitcode}/oclc_isa_version_940.bc AND NOT EXISTS ${quire_bitcode}/oclc_isa_version_942.bc)
    find_program(QUIRE_LLVM_DIS NAMES llvm-dis-19 REQUIRED)
    find_program(QUIRE_LLVM_AS NAMES llvm-as-19 REQUIRED)
    set(quire_made_bitcode ${PROJECT_BINARY_DIR}/hip/bitcode)
    file(GLOB quire_bitcode_files ${quire_bitcode}/*.bc)
    file(COPY ${quire_bitcode_files} DESTINATION ${quire_made_bitcode})
    execute_process(COMMAND ${QUIRE_LLVM_DIS} ${quire_bitcode}/oclc_isa_version_940.bc -o - COMMAND sed "s/i32 9400/i32 9402/"
      COMMAND ${QUIRE_LLVM_AS} -o ${quire_made_bitcode}/oclc_isa_version_942.bc COMMAND_ERROR_IS_FATAL ANY)
    list(APPEND quire_hip_flags --rocm-device-lib-path=${quire_made_bitcode})
  endif()
endif()

# quire_hip_objects(NAME VARIABLE SOURCE...): VARIABLE becomes the sources with each .cu replaced by its object file, hip/PATH.o in the build
# folder: code of every architecture, PATH.ARCHITECTURE.co beside it, in one object of the host. The target NAME_code makes that code alone,
# `hip_code` that of all.
function(quire_hip_objects name_of_target variable)
  set(result)
  set(all_codes)
  foreach(source ${ARGN})
    if(NOT source MATCHES "\\.cu$")
      list(APPEND result ${source})
      continue()
    endif()
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE name)
    set(stem ${PROJECT_BINARY_DIR}/hip/${name})
    cmake_path(GET stem PARENT_PATH folder)
    file(MAKE_DIRECTORY ${folder})
    set(targets host-x86_64-unknown-linux--)
    set(inputs -input=/dev/null)
    set(codes)
    foreach(architecture ${QUIRE_HIP_ARCHITECTURES})
      set(code ${stem}.${architecture}.co)
      add_custom_command(OUTPUT ${code}
        COMMAND ${CCACHE} ${QUIRE_HIP_COMPILER} ${quire_hip_flags} --offload-arch=${architecture} --cuda-device-only --no-gpu-bundle-output
          -MD -MF ${code}.d -MT ${code} -c ${source} -o ${code}
        DEPENDS ${source} DEPFILE ${code}.d COMMENT "HIP ${architecture} ${name}" VERBATIM)
      string(APPEND targets ",hipv4-amdgcn-amd-amdhsa--${architecture}")
      list(APPEND inputs -input=${code})
      list(APPEND codes ${code})
    endforeach()
    string(MD5 id ${name})  # of the compilation unit: each defines a symbol with it
    # ccache doesn't see the file of device code that the compiler embeds unless it is told.
    add_custom_command(OUTPUT ${stem}.o
      COMMAND ${QUIRE_HIP_BUNDLER} -type=o -bundle-align=4096 -targets=${targets} ${inputs} -output=${stem}.hipfb
      COMMAND ${CMAKE_COMMAND} -E env CCACHE_EXTRAFILES=${stem}.hipfb ${CCACHE} ${QUIRE_HIP_COMPILER} ${quire_hip_flags} --cuda-host-only -Xclang -cuid=${id}
        -Xclang -fcuda-include-gpubinary -Xclang ${stem}.hipfb -MD -MF ${stem}.d -MT ${stem}.o -c ${source} -o ${stem}.o
      DEPENDS ${source} ${codes} DEPFILE ${stem}.d COMMENT "HIP host ${name}" VERBATIM)
    list(APPEND all_codes ${codes})
    set_source_files_properties(${stem}.o PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    list(APPEND result ${stem}.o)
  endforeach()
  if(all_codes)
    add_custom_target(${name_of_target}_code DEPENDS ${all_codes})
    add_dependencies(hip_code ${name_of_target}_code)
  endif()
  set(${variable} ${result} PARENT_SCOPE)
endfunction()
