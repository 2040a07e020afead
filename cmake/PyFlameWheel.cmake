# A wheel runs on machines without our development packages: pyflame_vendor(TARGET RPATH) puts the shared libraries that TARGET needs into
# pyflame/libs of the Python component, where the installed TARGET looks for them. Old dynamic tags, because these also serve the libraries that
# a library needs.
set(PYFLAME_VENDOR_SCRIPT "${CMAKE_CURRENT_LIST_DIR}/vendor.cmake")
function(pyflame_vendor target rpath)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${rpath}")
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  install(CODE "set(FILES \"$<TARGET_FILE:${target}>\")
set(FOLDER \"\${CMAKE_INSTALL_PREFIX}/pyflame\")
include(\"${PYFLAME_VENDOR_SCRIPT}\")" COMPONENT python)
endfunction()

# pyflame_vendor_openblas(PYTHON): the OpenBLAS of the wheel becomes the part of it that PyFlame calls (openblas_subset.py). After all other libraries are there.
function(pyflame_vendor_openblas python)
  string(REGEX REPLACE "\\.so$" ".a" _archive "${PYFLAME_BLAS_LIBRARY}")
  if(NOT EXISTS "${_archive}" OR NOT _archive MATCHES "libopenblas")
    message(WARNING "wheel: OpenBLAS is brought whole, which makes the wheel 8 MB larger; got no ${_archive}; hint: on Debian and Ubuntu it is in libopenblas-pthread-dev")
    return()
  endif()
  set(_linker "")
  if(PYFLAME_MOLD)
    set(_linker "--linker mold")
  elseif(PYFLAME_LLD)
    set(_linker "--linker lld")
  endif()
  install(CODE "execute_process(COMMAND \"${python}\" \"${PROJECT_SOURCE_DIR}/cmake/openblas_subset.py\" --archive \"${_archive}\" --folder \"\${CMAKE_INSTALL_PREFIX}/pyflame\" --compiler \"${CMAKE_CXX_COMPILER}\" ${_linker}
  COMMAND_ERROR_IS_FATAL ANY)" COMPONENT python)
endfunction()
