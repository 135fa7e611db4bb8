# cmake/options.cmake: compiler flags of every target, and the compiler cache.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
if(NOT ATTN_WASM)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
endif()
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(NOT CMAKE_BUILD_TYPE AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# Of precompiled headers a compiler cache keeps nothing unless it is told to; one that the user chose is left as it is.
set(attn_precompile_default ${PROJECT_IS_TOP_LEVEL})
if(CMAKE_CXX_COMPILER_LAUNCHER)
  set(attn_precompile_default OFF)
endif()
option(ATTN_PRECOMPILED_HEADERS "Compile common headers once for each target: a third less time"
  ${attn_precompile_default})
option(ATTN_UNITY_BUILD "Compile the files of a folder as one, outside the kernels: a third less time"
  ${PROJECT_IS_TOP_LEVEL})
find_program(ATTN_CCACHE ccache)
if(ATTN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # With names relative to the source folder a build finds what was compiled in another folder.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${ATTN_CCACHE})
endif()

add_library(attn_options INTERFACE)
# GCC looks for memory that it can free when it has 128 MB and whenever that has doubled, which is a tenth of a build.
# With 3 GB for each core it first looks at 1 GB; hardly a file needs more.
cmake_host_system_information(RESULT attn_memory QUERY TOTAL_PHYSICAL_MEMORY)  # MiB
cmake_host_system_information(RESULT attn_cores QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR attn_memory_of_core "${attn_memory} / ${attn_cores}")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND attn_memory_of_core GREATER 3000)
  target_compile_options(attn_options INTERFACE --param=ggc-min-heapsize=1000000)
endif()
# No contraction: an FMA is written explicitly where it is meant, so that every build gives the same bits. A user's
# -ffast-math or -Ofast would change the bits, so it is switched off first.
target_compile_options(attn_options INTERFACE -fno-fast-math -ffp-contract=off -fno-math-errno -Wall -Wextra -Wpedantic)
# Under Clang the stable sort of GCC's library warns of a function that it calls itself.
target_compile_options(attn_options INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>)
# GCC 13 takes fmt's growing buffers, once they are inlined, for copies past their end.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13
   AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  target_compile_options(attn_options INTERFACE -Wno-array-bounds -Wno-stringop-overflow)
endif()
if(ATTN_SANITIZE)
  target_compile_options(attn_options INTERFACE -fsanitize=${ATTN_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(attn_options INTERFACE -fsanitize=${ATTN_SANITIZE})
  # GCC takes the checks of a sanitizer for uses of what was never set, in <regex> first of all.
  target_compile_options(attn_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
