# The libraries that PyFlame links. Used by our own build and, installed beside pyflame-config.cmake, by find_package(pyflame):
# one list, so that the two cannot drift apart. Everything here is a system package (tools/bootstrap.sh installs them).

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(fmt 9 CONFIG REQUIRED)
find_package(nlohmann_json 3.10 CONFIG REQUIRED)
find_package(hwy CONFIG REQUIRED)

# oneDNN by header and library rather than by its own config file: that one also insists on OpenCL, which we never use.
if(NOT TARGET pyflame::dnnl)
  find_path(PYFLAME_DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
  find_library(PYFLAME_DNNL_LIBRARY dnnl)
  if(NOT PYFLAME_DNNL_INCLUDE_DIR OR NOT PYFLAME_DNNL_LIBRARY)
    message(FATAL_ERROR "oneDNN was not found; on Debian and Ubuntu: apt-get install libdnnl-dev (or run tools/bootstrap.sh)")
  endif()
  add_library(pyflame::dnnl INTERFACE IMPORTED)
  target_include_directories(pyflame::dnnl INTERFACE "${PYFLAME_DNNL_INCLUDE_DIR}")
  target_link_libraries(pyflame::dnnl INTERFACE "${PYFLAME_DNNL_LIBRARY}")
endif()

# OpenBLAS comes in flavours (pthread, openmp, serial) that the system's alternatives switch between; the config file follows.
if(NOT TARGET pyflame::blas)
  find_package(OpenBLAS CONFIG QUIET)
  if(OpenBLAS_FOUND)
    set(PYFLAME_BLAS_INCLUDE_DIR "${OpenBLAS_INCLUDE_DIRS}")
    set(PYFLAME_BLAS_LIBRARY "${OpenBLAS_LIBRARIES}")
  else()
    find_path(PYFLAME_BLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas)
    find_library(PYFLAME_BLAS_LIBRARY openblas)
  endif()
  if(NOT PYFLAME_BLAS_INCLUDE_DIR OR NOT PYFLAME_BLAS_LIBRARY)
    message(FATAL_ERROR "OpenBLAS was not found; on Debian and Ubuntu: apt-get install libopenblas-dev (or run tools/bootstrap.sh)")
  endif()
  add_library(pyflame::blas INTERFACE IMPORTED)
  target_include_directories(pyflame::blas SYSTEM INTERFACE "${PYFLAME_BLAS_INCLUDE_DIR}")
  target_link_libraries(pyflame::blas INTERFACE "${PYFLAME_BLAS_LIBRARY}")
endif()
