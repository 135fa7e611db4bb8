# cmake/install.cmake: find_package(attn), pkg-config, the command; each file belongs to a component, which
# packages.cmake makes a package of: libattn (the shared library), libattn-dev (what a build needs), attn (the command).
include(CMakePackageConfigHelpers)
install(TARGETS attn attn_static attn_model EXPORT attn_targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libattn NAMELINK_COMPONENT libattn-dev
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libattn-dev)
if(TARGET attn_mpi)
  # An export of its own: find_package(attn COMPONENTS mpi) alone looks for an MPI.
  install(TARGETS attn_mpi EXPORT attn_mpi_targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libattn-dev)
  install(TARGETS attn_mpi_plugin LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/attn COMPONENT attn)
  install(EXPORT attn_mpi_targets NAMESPACE attn:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attn
    FILE attn-mpi-targets.cmake COMPONENT libattn-dev)
endif()
if(TARGET attn_cli)
  install(TARGETS attn_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT attn)
endif()
install(DIRECTORY include/attn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT libattn-dev)
install(EXPORT attn_targets NAMESPACE attn:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attn FILE attn-targets.cmake
  COMPONENT libattn-dev)
configure_package_config_file(cmake/attn-config.cmake.in attn-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attn)
write_basic_package_version_file(attn-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attn-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/attn-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attn COMPONENT libattn-dev)
# The package may be moved: its paths are relative to the .pc file.
file(RELATIVE_PATH ATTN_PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
foreach(kind LIB INCLUDE)  # some distributions give absolute paths
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${kind}DIR}")
    set(ATTN_PC_${kind}DIR "${CMAKE_INSTALL_${kind}DIR}")
  else()
    set(ATTN_PC_${kind}DIR "\${prefix}/${CMAKE_INSTALL_${kind}DIR}")
  endif()
endforeach()
configure_file(cmake/attn.pc.in attn.pc @ONLY)
configure_file(cmake/attn_model.pc.in attn_model.pc @ONLY)
if(TARGET attn_mpi)
  list(JOIN MPI_CXX_INCLUDE_DIRS " -I" ATTN_PC_MPI_INCLUDES)
  list(JOIN MPI_CXX_LIBRARIES " " ATTN_PC_MPI_LIBRARIES)
  configure_file(cmake/attn_mpi.pc.in attn_mpi.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attn_mpi.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    COMPONENT libattn-dev)
endif()
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attn.pc ${CMAKE_CURRENT_BINARY_DIR}/attn_model.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT libattn-dev)
if(PROJECT_IS_TOP_LEVEL)
  include(packages)
endif()
