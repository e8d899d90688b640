# core.cmake: makes amos_core.c, the core of the runtime as one file, for systems that amosc has no runtime of, or that are none:
# any compiler compiles it for them. libamos_core.a is that for this system.
set(CORE_FILES number.c program.c instance.c api.c store.c crc.c freestanding.c from_half.c name.c)
set(CORE_FOLDERS ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/common ${CMAKE_BINARY_DIR}/include/runtime)
set(CORE ${CMAKE_BINARY_DIR}/lib/amosc/amos_core.c)
file(GLOB CORE_PARTS CONFIGURE_DEPENDS *.[ch] *.def ${PROJECT_SOURCE_DIR}/common/*.[ch])
list(JOIN CORE_FILES "," FILES)
list(JOIN CORE_FOLDERS "," FOLDERS)
add_custom_command(OUTPUT ${CORE}
  COMMAND ${CMAKE_COMMAND} -DOUT=${CORE} "-DTITLE=amos_core.c: the core of the runtime of amosc ${PROJECT_VERSION}, Apache License 2.0"
    -DDEFINE=AMOS_FREESTANDING
    -DFILES=${FILES} -DFOLDERS=${FOLDERS} -P ${PROJECT_SOURCE_DIR}/cmake/amalgamate.cmake
  DEPENDS ${CORE_PARTS} ${PROJECT_SOURCE_DIR}/cmake/amalgamate.cmake VERBATIM)
add_library(amos_core STATIC ${CORE})
target_compile_options(amos_core PRIVATE ${WARNINGS} -ffreestanding -ffunction-sections)
install(FILES ${CORE} DESTINATION lib/amosc)
