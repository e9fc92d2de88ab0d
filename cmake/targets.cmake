# Flags of every target, and how targets get their sources.

# -ffp-contract=off: the same bits whatever the compiler fuses.
add_library(orrery_flags INTERFACE)
target_compile_options(orrery_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Werror -ffp-contract=off)
target_include_directories(orrery_flags INTERFACE ${PROJECT_SOURCE_DIR})
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 reports overlapping copies inside std::string where there are none (GCC bug 105651).
  target_compile_options(orrery_flags INTERFACE -Wno-restrict)
  if(NOT ORRERY_ODR)
    # So it does of overlong ones, where the standard library comes from a precompiled header.
    target_compile_options(orrery_flags INTERFACE -Wno-stringop-overflow -Wno-array-bounds)
  endif()
  if(ORRERY_UNITY)
    # A type of a source file that is compiled with others looks to g++ like one of a header.
    target_compile_options(orrery_flags INTERFACE -Wno-subobject-linkage)
  endif()
endif()
if(ORRERY_FUZZ)
  target_compile_options(orrery_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(ORRERY_ODR)
  # So that a file that misses an include of its own is found.
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
  # The code as ever, and beside it what a whole-program link reads: a tenth more to compile, and no second build.
  target_compile_options(orrery_flags INTERFACE -flto -ffat-lto-objects)
  target_link_options(orrery_flags INTERFACE
    $<IF:$<STREQUAL:$<TARGET_PROPERTY:NAME>,orrery_odr>,-flto=auto,-fno-lto>)
endif()
if(ORRERY_SANITIZE)
  target_compile_options(orrery_flags INTERFACE
    -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(orrery_flags INTERFACE -fsanitize=address,undefined)
endif()

# A library that shares the precompiled header of orrery_sim.
function(orrery_library target)
  add_library(${target} STATIC)
  target_precompile_headers(${target} REUSE_FROM orrery_sim)
endfunction()

# A library whose time is not that of a simulation: it compiles in half the time, and runs as fast as anybody notices.
function(orrery_front_library target)
  orrery_library(${target})
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# Adds files of this folder to a target. About eight of them are compiled as one, which shares their headers and templates:
# a third of the time of a build. Files of other folders are compiled alone.
function(orrery_sources target)
  target_sources(${target} PRIVATE ${ARGN})
  if(NOT ORRERY_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(MAKE_C_IDENTIFIER ${folder} folder)
  set(files ${ARGN})
  list(FILTER files EXCLUDE REGEX "/")
  list(LENGTH files count)
  math(EXPR batches "(${count} + 7) / 8")
  set(index 0)
  foreach(file IN LISTS files)
    math(EXPR batch "${index} * ${batches} / ${count}")
    set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/${file} TARGET_DIRECTORY ${target}
                                PROPERTIES UNITY_GROUP ${folder}_${batch})
    math(EXPR index "${index} + 1")
  endforeach()
endfunction()
