# How every target of the project is made: one library per room, one test program per room.

add_library(tessera_options INTERFACE)
target_include_directories(tessera_options INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
target_compile_options(tessera_options INTERFACE -Wall -Wextra -Wno-unused-parameter)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(tessera_options INTERFACE -march=${TESSERA_ARCH})
endif()
# The same source gives the same bits whatever the compiler: no contraction into fused multiply-adds.
target_compile_options(tessera_options INTERFACE -ffp-contract=off)
if(TESSERA_WERROR)
  target_compile_options(tessera_options INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # False alarms of g++ 12 on std::string (GCC bug 105329).
  target_compile_options(tessera_options INTERFACE -Wno-restrict)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(tessera_options INTERFACE -Wthread-safety)
endif()
if(TESSERA_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Loops that are to be vectorised are not.
  target_compile_options(tessera_options INTERFACE -Wno-pass-failed)
endif()
# What is linked into every program: no other file names what is in it, so from a library it would be left out.
add_library(tessera_steady_waits OBJECT ${CMAKE_SOURCE_DIR}/common/steady_waits.cc)
target_link_libraries(tessera_steady_waits PRIVATE tessera_options absl::synchronization absl::time)
set(TESSERA_PROGRAM_OBJECTS $<TARGET_OBJECTS:tessera_steady_waits>)
if(TESSERA_SANITIZE STREQUAL "address")
  target_compile_options(tessera_options INTERFACE -fsanitize=address,undefined
                         -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(tessera_options INTERFACE -fsanitize=address,undefined)
elseif(TESSERA_SANITIZE STREQUAL "thread")
  # Protobuf's headers lay out map fields otherwise when they see the sanitizer; Debian's library was built without.
  target_compile_options(tessera_options INTERFACE -fsanitize=thread -U__SANITIZE_THREAD__
                         -fno-omit-frame-pointer)
  target_link_options(tessera_options INTERFACE -fsanitize=thread)
  add_library(tessera_tsan OBJECT ${CMAKE_SOURCE_DIR}/tests/tsan_mutex.cc ${CMAKE_SOURCE_DIR}/tests/tsan_memory_files.cc)
  target_link_libraries(tessera_tsan PRIVATE tessera_options)
  list(APPEND TESSERA_PROGRAM_OBJECTS $<TARGET_OBJECTS:tessera_tsan>)
endif()

# tessera_list_of_files(FOLDER PATTERN HEADER MACRO [INCLUDED]): writes FOLDER/HEADER, which code includes as if it stood there, with a list
# of the folder's files, so that one more file there is all that it takes:
#   #define MACRO(X) X(BatchNormalization, batch_normalization) X(Softmax, softmax) ...
# INCLUDED: the header includes them, too. A *.cc beside a header of its name serves the others, and is not of the list.
function(tessera_list_of_files folder pattern header macro)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/${pattern})
  set(includes "")
  set(names "")
  foreach(file ${files})
    cmake_path(GET file STEM name)
    if(file MATCHES "\\.cc$" AND EXISTS ${CMAKE_SOURCE_DIR}/${folder}/${name}.h)
      continue()
    endif()
    set(camel_case "")
    string(REPLACE "_" ";" words ${name})
    foreach(word ${words})
      string(SUBSTRING ${word} 0 1 first)
      string(SUBSTRING ${word} 1 -1 rest)
      string(TOUPPER ${first} first)
      string(APPEND camel_case ${first}${rest})
    endforeach()
    string(APPEND names " \\\n  X(${camel_case}, ${name})")
    if("INCLUDED" IN_LIST ARGN)
      string(APPEND includes "#include \"${folder}/${name}.h\"\n")
    endif()
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/${folder}/${header}
       CONTENT "// Made by cmake/TesseraTargets.cmake.\n#pragma once\n${includes}#define ${macro}(X)${names}\n")
endfunction()

# What nearly every file includes, read by the compiler once for all targets of more than a few files, and once more
# for tests and where options differ. Files still name what they use: a build without these and
# TESSERA_UNITY shows what one forgot.
set(TESSERA_PRECOMPILED
    <algorithm> <functional> <map> <memory> <optional> <string> <vector>
    <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_format.h>
    <absl/synchronization/mutex.h> <absl/types/span.h> <tessera/v1/job.pb.h>)
set(TESSERA_PRECOMPILED_IN_TESTS
    ${TESSERA_PRECOMPILED} <filesystem> <fstream> <random> <set> <gmock/gmock.h> <grpcpp/grpcpp.h>)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # What the compiler cache can find again holds no times.
  add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
endif()
# tessera_headers(NAME HEADERS ... [OPTIONS ...] [DEPS ...]): a target whose precompiled headers others use, which compile with the
# same options and macros.
function(tessera_headers name)
  cmake_parse_arguments(ARG "" "" "HEADERS;OPTIONS;DEPS" ${ARGN})
  if(TESSERA_PRECOMPILE)
    file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/${name}.cc CONTENT "")
    add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/${name}.cc)
    target_link_libraries(${name} PRIVATE tessera_options tessera_proto absl::statusor absl::str_format
                          absl::synchronization absl::span ${ARG_DEPS})
    target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
    target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
  endif()
endfunction()
# tessera_precompile(NAME SOURCES FROM): FROM is a target of tessera_headers, or empty: the target's own, with its options.
function(tessera_precompile name sources from)
  list(LENGTH sources count)
  if(NOT TESSERA_PRECOMPILE OR count LESS_EQUAL 5)
    return()
  endif()
  if(from)
    target_precompile_headers(${name} REUSE_FROM ${from})
  else()
    target_precompile_headers(${name} PRIVATE ${TESSERA_PRECOMPILED})
  endif()
endfunction()

# Several files at once take the compiler half the time or less, as what they include is most of their work. A name that two of
# them have, in unnamed namespaces, too, is an error then: one of them needs another name. Which are compiled together
# hangs on the list of files, so that a new file can bring one out between two others.
function(tessera_unite name)
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${TESSERA_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  if(TESSERA_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # What is unnamed in a file that another includes looks like a header's.
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endfunction()

# tessera_library(NAME SOURCES ... DEPS ... [OPTIONS ...]): a room. Only its DEPS link, so a wrong include does not. OPTIONS are
# those of the compiler that other rooms have not.
function(tessera_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;OPTIONS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC tessera_options ${ARG_DEPS})
  target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
  set(headers tessera_headers)
  if(ARG_OPTIONS)
    set(headers "")
  endif()
  tessera_precompile(${name} "${ARG_SOURCES}" "${headers}")
  tessera_unite(${name})
endfunction()

# tessera_binary(NAME SOURCES ... DEPS ...): a thin main.cc over rooms.
function(tessera_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES} ${TESSERA_PROGRAM_OBJECTS})
  target_link_libraries(${name} PRIVATE tessera_options ${ARG_DEPS})
  # Installed, it has its libraries beside it, and those have theirs from it (cmake/Install.cmake).
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
  # Reads its options once: optimising that fully takes longer than all else in it. Not -O0: what headers define and no
  # compiler inlined is linked once, as this file, the first, has it.
  target_compile_options(${name} PRIVATE -O1)
endfunction()

# tessera_test(NAME SOURCES ... DEPS ... [LABELS ...]): a GoogleTest program; each TEST is a ctest case.
function(tessera_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES} ${TESSERA_PROGRAM_OBJECTS} $<TARGET_OBJECTS:tessera_test_main>)
  target_link_libraries(${name} PRIVATE tessera_options tessera_test_paths ${ARG_DEPS} GTest::gmock)
  # The rooms under test are optimised, the tests' own code is not: it halves the time to build them.
  target_compile_options(${name} PRIVATE -O0)
  tessera_precompile(${name} "${ARG_SOURCES}" tessera_test_headers)
  tessera_unite(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  # What hangs says so itself (tests/main.cc) before ctest ends it.
  math(EXPR seconds "${ARG_TIMEOUT} - 20")
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "TESSERA_TEST_SECONDS=${seconds}" LABELS "${ARG_LABELS}")
endfunction()
