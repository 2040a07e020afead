# What the tools link besides the core's libraries: the formats of the files that they read. Debian packages: libsqlite3-dev,
# zlib1g-dev, libzstd-dev, libbz2-dev (tools/bootstrap.sh installs them). docs/decisions/0005 says why each.
find_package(SQLite3 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(BZip2 REQUIRED)
if(NOT TARGET pyflame::zstd)
  find_path(PYFLAME_ZSTD_INCLUDE_DIR zstd.h)
  find_library(PYFLAME_ZSTD_LIBRARY zstd)
  if(NOT PYFLAME_ZSTD_INCLUDE_DIR OR NOT PYFLAME_ZSTD_LIBRARY)
    message(FATAL_ERROR "zstd was not found; on Debian and Ubuntu: apt-get install libzstd-dev (or run tools/bootstrap.sh)")
  endif()
  add_library(pyflame::zstd INTERFACE IMPORTED)
  target_include_directories(pyflame::zstd INTERFACE "${PYFLAME_ZSTD_INCLUDE_DIR}")
  target_link_libraries(pyflame::zstd INTERFACE "${PYFLAME_ZSTD_LIBRARY}")
endif()
# What is linked, and its files for a wheel, whose program links them apart from the tools (PyFlameWheel.cmake).
set(PYFLAME_FORMAT_LIBRARIES SQLite::SQLite3 ZLIB::ZLIB pyflame::zstd BZip2::BZip2)
set(PYFLAME_FORMAT_FILES ${SQLite3_LIBRARIES} ${ZLIB_LIBRARIES} ${PYFLAME_ZSTD_LIBRARY} ${BZIP2_LIBRARIES})
