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
