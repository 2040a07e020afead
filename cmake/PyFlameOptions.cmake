# How our own code is compiled: one interface target, so that every target obeys the same rules and consumers inherit none of them.

add_library(pyflame_options INTERFACE)
add_library(pyflame::options ALIAS pyflame_options)

# -O3 pays only in the CPU backend's kernels (see CMakeLists.txt); elsewhere it costs compile time.
string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")

# A fused group and its parts give the same bits only when the compiler never contracts a*b+c by itself.
target_compile_options(pyflame_options INTERFACE -ffp-contract=off)

target_compile_options(pyflame_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-align -Wunused -Wextra-semi)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(pyflame_options INTERFACE -Wlogical-op -Wduplicated-cond)
endif()
# GCC 12's flow warnings misread std::sort and std::copy on small fixed arrays.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  target_compile_options(pyflame_options INTERFACE -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread -Wno-restrict)
endif()
if(PYFLAME_WERROR)
  target_compile_options(pyflame_options INTERFACE -Werror)
endif()

if(PYFLAME_SANITIZE)
  string(REPLACE ";" "," _sanitizers "${PYFLAME_SANITIZE}")
  # GCC's flow warnings see through the sanitizers' instrumentation and report what is not there.
  set(_flags -fsanitize=${_sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_options(pyflame_options INTERFACE ${_flags} -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-array-bounds)
  target_link_options(pyflame_options INTERFACE ${_flags})
  if("thread" IN_LIST PYFLAME_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(pyflame_options INTERFACE -Wno-tsan)  # fences are not modelled; we know
  endif()
endif()

include("${CMAKE_CURRENT_LIST_DIR}/PyFlameCcache.cmake")
# A fast linker is used when it is there.
find_program(PYFLAME_MOLD mold)
find_program(PYFLAME_LLD ld.lld)
if(PYFLAME_MOLD)
  add_link_options(-fuse-ld=mold)
elseif(PYFLAME_LLD)
  add_link_options(-fuse-ld=lld)
endif()
