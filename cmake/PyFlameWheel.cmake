set(PYFLAME_WHEEL_FOLDER "${CMAKE_CURRENT_LIST_DIR}/wheel")

# Functions that older C and C++ libraries lack (wheel/older_glibc.py). It loads the libraries that glibc before 2.34 had beside libc.
if(DEFINED SKBUILD)
  add_library(pyflame_compat SHARED "${PYFLAME_WHEEL_FOLDER}/compat.cpp")
  foreach(_name libpthread.so.0 libdl.so.2)
    execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=${_name} OUTPUT_VARIABLE _file OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(IS_ABSOLUTE "${_file}")
      target_link_libraries(pyflame_compat PRIVATE -Wl,--no-as-needed "${_file}")
    endif()
  endforeach()
endif()

# A wheel runs on machines without our development packages: pyflame_vendor(TARGET RPATH) puts the shared libraries that TARGET needs into
# pyflame/libs of the Python component, where the installed TARGET looks for them. Old dynamic tags, because these also serve the libraries that
# a library needs.
function(pyflame_vendor target rpath)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${rpath}")
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  target_link_libraries(${target} PRIVATE -Wl,--push-state,--no-as-needed pyflame_compat -Wl,--pop-state)
  install(CODE "set(FILES \"$<TARGET_FILE:${target}>\")
set(FOLDER \"\${CMAKE_INSTALL_PREFIX}/pyflame\")
include(\"${PYFLAME_WHEEL_FOLDER}/vendor.cmake\")" COMPONENT python)
endfunction()

# pyflame_vendor_openblas(PYTHON): the OpenBLAS of the wheel becomes the part of it that PyFlame calls (wheel/openblas_subset.py). After all other libraries are there.
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
  install(CODE "execute_process(COMMAND \"${python}\" \"${PYFLAME_WHEEL_FOLDER}/openblas_subset.py\" --archive \"${_archive}\" --folder \"\${CMAKE_INSTALL_PREFIX}/pyflame\" --compiler \"${CMAKE_CXX_COMPILER}\" ${_linker}
  COMMAND_ERROR_IS_FATAL ANY)" COMPONENT python)
endfunction()

# pyflame_older_glibc(PYTHON): the wheel runs on machines whose C library is older than this one's (wheel/older_glibc.py). Last of all.
function(pyflame_older_glibc python)
  install(CODE "execute_process(COMMAND \"${python}\" \"${PYFLAME_WHEEL_FOLDER}/older_glibc.py\" --folder \"\${CMAKE_INSTALL_PREFIX}/pyflame\" --compiler \"${CMAKE_CXX_COMPILER}\"
  COMMAND_ERROR_IS_FATAL ANY)" COMPONENT python)
endfunction()

# pyflame_wheel_program(TARGET MODULE): TARGET is the program of a wheel (wheel/program.cpp), which starts what pyflame_in_module() puts into MODULE. It is in
# the folder where it finds the module, in the build as in the wheel.
function(pyflame_wheel_program target module)
  add_executable(${target} "${PYFLAME_WHEEL_FOLDER}/program.cpp")
  add_dependencies(${target} ${module})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "$<TARGET_FILE_DIR:${module}>/bin")
  target_compile_definitions(${target} PRIVATE "PYFLAME_MODULE=\"$<TARGET_FILE_NAME:${module}>\"")
  target_link_libraries(${target} PRIVATE -Wl,--push-state,--no-as-needed ${PYFLAME_FORMAT_FILES} -Wl,--pop-state ${CMAKE_DL_LIBS} pyflame::options)
endfunction()

# pyflame_in_module(MODULE PROGRAM PYTHON): the objects of PROGRAM become a part of MODULE, which loads without the libraries that only PROGRAM needs, and
# without an interpreter (wheel/weak_symbols.py). The C++ library is linked statically, because that of the machine may be older.
function(pyflame_in_module module program python)
  target_link_options(${module} PRIVATE -static-libstdc++ -Wl,--exclude-libs,libstdc++.a)
  target_link_libraries(${module} PRIVATE ${program})
  add_custom_command(TARGET ${module} POST_BUILD
    COMMAND "${python}" "${PYFLAME_WHEEL_FOLDER}/weak_symbols.py" "$<TARGET_FILE:${module}>" ${PYFLAME_FORMAT_FILES} VERBATIM)
endfunction()
