# How each kernel library and test is built: in a plain tree as it is and under the sanitizers, in a sanitized tree as
# that tree says. ThreadSanitizer needs -O2: below, gcc does not instrument stores of structs that calls return.
set(cuda_on_cpu_options_plain -O2)
set(cuda_on_cpu_options_asan
  -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined)
set(cuda_on_cpu_options_tsan -O2 -g1 -fno-omit-frame-pointer -fsanitize=thread -Wno-tsan)
if(SLUICE_SANITIZE STREQUAL "")
  set(cuda_on_cpu_variants plain asan tsan)
else()
  set(cuda_on_cpu_variants plain)
endif()

function(cuda_on_cpu_variant_name result name variant)
  if(variant STREQUAL "plain")
    set(${result} ${name} PARENT_SCOPE)
  else()
    set(${result} ${name}_${variant} PARENT_SCOPE)
  endif()
endfunction()

# cuda_on_cpu_kernels(NAME SRCS a.cu ... [LIBS x ...]): the static libraries NAME, NAME_asan and NAME_tsan of kernels
# compiled as plain C++.
function(cuda_on_cpu_kernels name)
  cmake_parse_arguments(ARG "" "" "SRCS;LIBS" ${ARGN})
  set_source_files_properties(${ARG_SRCS} PROPERTIES LANGUAGE CXX)
  foreach(variant ${cuda_on_cpu_variants})
    cuda_on_cpu_variant_name(target ${name} ${variant})
    add_library(${target} STATIC ${ARG_SRCS})
    target_link_libraries(${target} PUBLIC cuda_on_cpu ${ARG_LIBS})
    # Kernels read 16 bytes of anything at a time.
    target_compile_options(${target} PRIVATE -fno-strict-aliasing -Wno-unknown-pragmas ${cuda_on_cpu_options_${variant}})
  endforeach()
endfunction()

# cuda_on_cpu_test(NAME SRCS a.cc ... KERNELS lib ... [LIBS x ...] [TSAN_FILTER gtest-filter]): a gtest program for each
# variant of the kernels, run plain in each thread order and once under each sanitizer. ThreadSanitizer is slow: a filter
# gives it the small cases.
function(cuda_on_cpu_test name)
  cmake_parse_arguments(ARG "" "TSAN_FILTER" "SRCS;KERNELS;LIBS" ${ARGN})
  foreach(variant ${cuda_on_cpu_variants})
    cuda_on_cpu_variant_name(target ${name} ${variant})
    add_executable(${target} ${ARG_SRCS})
    # Kernels as a whole: libraries are searched in order, and what launches them may come later.
    target_link_libraries(${target} PRIVATE ${ARG_LIBS})
    foreach(library ${ARG_KERNELS})
      cuda_on_cpu_variant_name(kernels ${library} ${variant})
      target_link_libraries(${target} PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,${kernels}>)
    endforeach()
    target_link_libraries(${target} PRIVATE GTest::gmock GTest::gtest GTest::gtest_main)
    target_compile_definitions(${target} PRIVATE SLUICE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    # Later options win: tests themselves spend no time.
    target_compile_options(${target} PRIVATE -Wno-unknown-pragmas ${cuda_on_cpu_options_${variant}} -O1)
    if(NOT variant STREQUAL "plain")
      target_link_options(${target} PRIVATE ${cuda_on_cpu_options_${variant}})
    endif()
    set(filter)
    if(ARG_TSAN_FILTER AND (variant STREQUAL "tsan" OR SLUICE_SANITIZE STREQUAL "thread"))
      set(filter --gtest_filter=${ARG_TSAN_FILTER})
    endif()
    set(environment "ASAN_OPTIONS=detect_leaks=1" "UBSAN_OPTIONS=print_stacktrace=1" "TSAN_OPTIONS=halt_on_error=1")
    add_test(NAME ${target} COMMAND ${target} ${filter} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${target} PROPERTIES ENVIRONMENT "${environment}")
    sluice_timeout(300 ${target})
    if(variant STREQUAL "plain" AND SLUICE_SANITIZE STREQUAL "")
      foreach(order reverse random)
        add_test(NAME ${target}_${order} COMMAND ${target} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
        set_tests_properties(${target}_${order} PROPERTIES ENVIRONMENT CUDA_ON_CPU_ORDER=${order})
        sluice_timeout(300 ${target}_${order})
      endforeach()
    endif()
  endforeach()
endfunction()

# cuda_on_cpu_mutants(NAME TABLE file.toml): a test that seeds the bugs of a table. It asks ninja how things are built.
function(cuda_on_cpu_mutants name)
  cmake_parse_arguments(ARG "" "TABLE" "" ${ARGN})
  if(SLUICE_SANITIZE STREQUAL "" AND CMAKE_GENERATOR STREQUAL "Ninja")
    add_test(NAME ${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/cuda_on_cpu/mutants
      ${CMAKE_BINARY_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_TABLE})
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    sluice_timeout(900 ${name})
  endif()
endfunction()
