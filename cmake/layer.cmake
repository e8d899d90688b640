# layer.cmake: defines layer(NAME SOURCES file... SEES layer... LINK library...).
# A layer is one static library that gets only the include paths of the layers below it, so a
# forbidden include does not compile.
function(layer name)
  cmake_parse_arguments(F "" "" "SOURCES;SEES;LINK" ${ARGN})
  if(NOT F_SOURCES)
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_CURRENT_SOURCE_DIR})
    target_link_libraries(${name} INTERFACE ${F_SEES} ${F_LINK})
    return()
  endif()
  add_library(${name} STATIC ${F_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE -Wall -Wextra -Werror)
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
  target_link_libraries(${name} PUBLIC ${F_SEES} ${F_LINK})
endfunction()
