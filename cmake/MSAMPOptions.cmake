# Flags that both halves share; the runtime includes this file when built alone.

find_program(MSAMP_CCACHE ccache)
if(MSAMP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # A precompiled header changes its time stamp with every build; without these
  # two settings ccache would never hit.
  set(launcher ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${MSAMP_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
  endif()
endif()

if(MSAMP_SANITIZE)
  add_compile_options(-fsanitize=${MSAMP_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${MSAMP_SANITIZE})
endif()

# Numerics are a contract: no compiler may contract a*b+c on its own.
add_compile_options(-ffp-contract=off)

# Warnings for our own targets.
add_library(msamp_warnings INTERFACE)
target_compile_options(msamp_warnings INTERFACE -Wall -Wextra -Wno-unused-parameter)
