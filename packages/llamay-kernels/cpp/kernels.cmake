# The kernel sets and the ordinary code, as objects: `sets`, `objects`, kernels_base. Wants LLAMAY_ABI, LLAMAY_SANITIZE.

# -ffp-contract=off: a product and a sum are fused where docs/arithmetic.md says so, and nowhere else.
# GCC 12 warns about its own immintrin.h (registers left undefined on purpose) and std::string (PR 105329).
set(flags -O3 -ffp-contract=off -Wall -Wextra -Werror $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
set(link_flags "")
if(LLAMAY_SANITIZE)
  # Checks after every lane of sixteen take the compiler minutes at -O3; less of it says the same of immintrin.h in other words.
  list(APPEND flags -O1 -fsanitize=${LLAMAY_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1
       $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized>)
  list(APPEND link_flags -fsanitize=${LLAMAY_SANITIZE})
endif()

# isa_*.cpp in any folder is compiled once for every kernel set; <area>/bind/*.cpp belongs to the Python module;
# every other .cpp file of an area is ordinary code for the baseline CPU.
set(cpp ${CMAKE_CURRENT_LIST_DIR})
file(GLOB_RECURSE isa_sources CONFIGURE_DEPENDS ${cpp}/isa_*.cpp)
file(GLOB bind_sources CONFIGURE_DEPENDS ${cpp}/*/bind/*.cpp)
file(GLOB_RECURSE base_sources CONFIGURE_DEPENDS ${cpp}/*.cpp)
if(LLAMAY_AREAS)  # digest/CMakeLists.txt builds some areas only, itself among them
  list(FILTER isa_sources INCLUDE REGEX "/cpp/(${LLAMAY_AREAS})/")
  list(FILTER base_sources INCLUDE REGEX "/cpp/(${LLAMAY_AREAS})/")
  list(APPEND base_sources ${cpp}/dispatch.cpp)
else()
  list(FILTER isa_sources EXCLUDE REGEX "/cpp/digest/")
  list(FILTER base_sources EXCLUDE REGEX "/cpp/(digest|tests)/")
endif()
list(FILTER base_sources EXCLUDE REGEX "/cpp/matmul/bench/")
list(REMOVE_ITEM base_sources ${isa_sources} ${bind_sources} ${cpp}/bindings.cpp ${cpp}/digest/digest.cpp)

set(sets portable)
set(flags_portable "")
set(defines "")
if(LLAMAY_NATIVE_TESTS)
  # ThreadSanitizer sees every access of the portable set; of intrinsics, only those that are plain loads and stores.
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(avx2 -mavx2 -mfma -mf16c)
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq)
  list(APPEND sets avx2 avx_vnni avx512 avx512_vnni)
  set(flags_avx2 ${avx2})
  set(flags_avx_vnni ${avx2} -mavxvnni)
  if(LLAMAY_EVEX_VNNI)  # the same instructions as AVX-512 processors know them, to test this set on those
    set(flags_avx_vnni ${avx2} -mavx512f -mavx512vl -mavx512vnni)
  endif()
  set(flags_avx512 ${avx512})
  set(flags_avx512_vnni ${avx512} -mavx512vnni)
  set(defines LLAMAY_X86)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
  # NEON is part of the architecture, so every set has it; LLAMAY_NEON says which ones use it.
  list(APPEND sets neon neon_dotprod neon_i8mm)
  set(flags_neon -DLLAMAY_NEON)
  set(flags_neon_dotprod -DLLAMAY_NEON -march=armv8.2-a+dotprod)
  set(flags_neon_i8mm -DLLAMAY_NEON -march=armv8.2-a+dotprod+i8mm)
  set(defines LLAMAY_ARM64)
endif()

# An ISA object includes no C++ library header: an inline function compiled for AVX-512 could be the copy that the
# linker keeps for every CPU. It exports one table and nothing else; tests/machine/test_isa.py looks.
set(isa_flags ${flags} -fno-exceptions -fno-rtti)
set(objects "")
foreach(set IN LISTS sets)
  add_library(kernels_${set} OBJECT ${isa_sources})
  target_include_directories(kernels_${set} PRIVATE ${cpp} ${LLAMAY_ABI})
  target_compile_definitions(kernels_${set} PRIVATE LLAMAY_ISA=${set} ${defines})
  target_compile_options(kernels_${set} PRIVATE ${isa_flags} ${flags_${set}})
  list(APPEND objects $<TARGET_OBJECTS:kernels_${set}>)
endforeach()

# Apart from the module, which nanobind compiles for size.
add_library(kernels_base OBJECT ${base_sources})
target_include_directories(kernels_base PRIVATE ${cpp} ${LLAMAY_ABI})
target_compile_definitions(kernels_base PRIVATE ${defines})
target_compile_options(kernels_base PRIVATE ${flags})
