# Compiler flags that every target shares. Instruction sets beyond the x86-64 baseline are set per file in src/kernels.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(quire_flags INTERFACE)
target_compile_options(quire_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off;-Wall;-Wextra;$<$<CXX_COMPILER_ID:GNU>:-Wshadow=local>;-Wnon-virtual-dtor;-Woverloaded-virtual;-Wvla;-Walloca;$<$<BOOL:${QUIRE_WERROR}>:-Werror>>
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--extended-lambda;-Xcompiler=-Wall,-Wextra>)
target_include_directories(quire_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)

if(QUIRE_SANITIZE)
  add_compile_options(-fsanitize=${QUIRE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${QUIRE_SANITIZE})
endif()
if(QUIRE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
