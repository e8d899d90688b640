# layer.cmake: defines layer(NAME [OBJECT] SOURCES file... SEES layer... LINK library...).
# A layer is one static library, or objects for several, that gets only the include paths of the layers below it, so a
# forbidden include does not compile.
function(layer name)
  cmake_parse_arguments(F "OBJECT" "" "SOURCES;SEES;LINK" ${ARGN})
  if(NOT F_SOURCES)
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_CURRENT_SOURCE_DIR})
    target_link_libraries(${name} INTERFACE ${F_SEES} ${F_LINK})
    return()
  endif()
  if(F_OBJECT)
    add_library(${name} OBJECT ${F_SOURCES})
  else()
    add_library(${name} STATIC ${F_SOURCES})
  endif()
  target_include_directories(${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${WARNINGS})
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
  if(CMAKE_SIZEOF_VOID_P EQUAL 4) # where it is 8, these only ask for fcntl64(), which old versions of glibc do not have
    target_compile_definitions(${name} PRIVATE _FILE_OFFSET_BITS=64 _TIME_BITS=64)
  endif()
  target_link_libraries(${name} PUBLIC ${F_SEES} ${F_LINK})
endfunction()
