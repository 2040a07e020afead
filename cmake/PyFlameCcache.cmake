# The compiler cache, where it is installed: nothing depends on it. Clones of the project on one machine share its entries, because paths below
# the source folder count relative to it and the build folder does not count. A cache that the user has given a base folder is left as it is.
if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(PYFLAME_CCACHE ccache)
  if(PYFLAME_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${PYFLAME_CCACHE}")
    execute_process(COMMAND "${PYFLAME_CCACHE}" --get-config base_dir OUTPUT_VARIABLE _base_dir OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(_base_dir STREQUAL "")
      get_filename_component(_root "${CMAKE_CURRENT_LIST_DIR}" DIRECTORY)
      set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${_root}" CCACHE_NOHASHDIR=1 "${PYFLAME_CCACHE}")
    endif()
  endif()
endif()
