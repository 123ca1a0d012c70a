# Finds MLIR and defines the helpers of the compiler half.

list(APPEND CMAKE_PREFIX_PATH /usr/lib/llvm-22)
# Without it MLIR's static archives would be mixed with the shared library.
set(MLIR_LINK_MLIR_DYLIB ON)
find_package(MLIR 22.1 REQUIRED CONFIG)
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
set(LLVM_RUNTIME_OUTPUT_INTDIR ${CMAKE_BINARY_DIR}/bin)
set(LLVM_LIBRARY_OUTPUT_INTDIR ${CMAKE_BINARY_DIR}/lib)
include(TableGen)
include(AddLLVM)
include(AddMLIR)

separate_arguments(llvm_definitions NATIVE_COMMAND "${LLVM_DEFINITIONS}")

# What every target of the compiler half compiles with.
add_library(msamp_compiler_options INTERFACE)
target_include_directories(msamp_compiler_options INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
target_include_directories(msamp_compiler_options SYSTEM INTERFACE
  ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
target_compile_definitions(msamp_compiler_options INTERFACE ${llvm_definitions})
target_link_libraries(msamp_compiler_options INTERFACE msamp_warnings)

# add_msamp_library(NAME source... [DEPENDS target...] [LINK_LIBS library...])
# A static library of the compiler half. All share one precompiled header, which
# takes a translation unit from 11 s to under 4 s.
function(add_msamp_library name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LINK_LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PUBLIC ${ARG_LINK_LIBS} MLIR LLVM)
  msamp_compiler_target(${name} ${ARG_DEPENDS})
endfunction()

# add_msamp_tool(NAME source... [LINK_LIBS library...])
function(add_msamp_tool name)
  cmake_parse_arguments(ARG "" "" "LINK_LIBS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_LINK_LIBS} MLIR LLVM)
  # As the precompiled header: CMake would choose -fPIE for an executable.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF
                        INSTALL_RPATH_USE_LINK_PATH ON)
  target_compile_options(${name} PRIVATE -fPIC)
  msamp_compiler_target(${name})
  install(TARGETS ${name} RUNTIME DESTINATION bin)
endfunction()

function(msamp_compiler_target name)
  target_link_libraries(${name} PRIVATE msamp_compiler_options)
  add_dependencies(${name} msamp_tablegen ${ARGN})
  if(TARGET msamp_pch)
    target_precompile_headers(${name} REUSE_FROM msamp_pch)
  endif()
endfunction()

# Names the targets that generate headers, so that libraries need not list them.
add_custom_target(msamp_tablegen)

file(WRITE ${PROJECT_BINARY_DIR}/msamp_pch.cpp "")
add_library(msamp_pch STATIC ${PROJECT_BINARY_DIR}/msamp_pch.cpp)
target_link_libraries(msamp_pch PRIVATE msamp_compiler_options MLIR)
target_precompile_headers(msamp_pch PRIVATE
  <mlir/Dialect/Arith/IR/Arith.h>
  <mlir/Dialect/Func/IR/FuncOps.h>
  <mlir/Dialect/Math/IR/Math.h>
  <mlir/IR/Builders.h>
  <mlir/IR/DialectImplementation.h>
  <mlir/IR/OpImplementation.h>
  <mlir/IR/PatternMatch.h>
  <mlir/Pass/Pass.h>
  <mlir/Pass/PassManager.h>
  <mlir/Transforms/GreedyPatternRewriteDriver.h>)
