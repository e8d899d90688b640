# install.cmake: what is installed, and where: the command with its runtime, the library, headers, manual pages, and what
# build systems find: pkg-config files and a CMake package. Every file finds the others relative to itself.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(AMOS_LIBDIR lib/amosc/${AMOSC_SYSTEM}) # whatever CMAKE_INSTALL_LIBDIR is: the command finds its runtimes in lib/amosc

install(TARGETS amosc RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(PROGRAMS bench/peer_torch bench/peer_ort DESTINATION lib/amosc/peers)
install(FILES bench/peer.py bench/onnx_torch.py DESTINATION lib/amosc/peers)
install(TARGETS libamosc LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES driver/amosc.h common/amos.h runtime/runtime.h runtime/core.h runtime/abi.h runtime/abi.def runtime/options.def
  common/common.h common/freestanding.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/amosc)
install(FILES ${PAGES} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${CMAKE_BINARY_DIR}/completions/amosc DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${CMAKE_BINARY_DIR}/completions/_amosc DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${CMAKE_BINARY_DIR}/completions/amosc.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES LICENSE NOTICE THIRD_PARTY.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(SKBUILD) # the wheel: the prefix is the package amosc; a module next to it runs the command
  install(FILES python/amosc_command.py DESTINATION ..)
endif()

# The libraries that the runtime needs, as the layer `amos_minimal` lists them.
get_target_property(NEEDED amos_minimal INTERFACE_LINK_LIBRARIES)
list(REMOVE_ITEM NEEDED abi common)
list(TRANSFORM NEEDED REPLACE "^.*/lib([^/]+)\\.(so|a)$" "\\1")
list(JOIN NEEDED " -l" AMOS_LIBS)
string(REPLACE "-lThreads::Threads" "-pthread" AMOS_LIBS "-l${AMOS_LIBS}")

file(RELATIVE_PATH PREFIX_FROM_PC /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" PREFIX_FROM_PC "${PREFIX_FROM_PC}")
foreach(name amos amosc)
  configure_file(cmake/${name}.pc.in ${CMAKE_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

set(PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/amosc)
file(RELATIVE_PATH CORE_FROM_PACKAGE /prefix/${PACKAGE_DIR} /prefix/lib/amosc/amos_core.c)
configure_package_config_file(cmake/amoscConfig.cmake.in ${CMAKE_BINARY_DIR}/amoscConfig.cmake
  INSTALL_DESTINATION ${PACKAGE_DIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/amoscConfigVersion.cmake COMPATIBILITY SameMinorVersion
  ARCH_INDEPENDENT) # amoscConfig.cmake checks what needs that
install(FILES ${CMAKE_BINARY_DIR}/amoscConfig.cmake ${CMAKE_BINARY_DIR}/amoscConfigVersion.cmake DESTINATION ${PACKAGE_DIR})
