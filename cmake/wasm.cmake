# cmake/wasm.cmake: toolchain file of the preset wasm: Debian's clang-19 for WebAssembly with its libc++ and wasi-libc.
set(ATTN_WASM ON)
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(CMAKE_CXX_COMPILER clang++-19)
set(CMAKE_CXX_COMPILER_TARGET wasm32-wasi)
# Headers and libraries of the target alone: below /usr/include there are also those of this machine's C library.
set(CMAKE_SYSROOT ${CMAKE_BINARY_DIR}/sysroot)
foreach(attn_folder include lib)
  file(MAKE_DIRECTORY ${CMAKE_SYSROOT}/${attn_folder})
  file(CREATE_LINK /usr/${attn_folder}/wasm32-wasi ${CMAKE_SYSROOT}/${attn_folder}/wasm32-wasi SYMBOLIC)
endforeach()
# Exceptions of WebAssembly, and what every engine has had since 2021.
set(CMAKE_CXX_FLAGS_INIT "-fwasm-exceptions -mbulk-memory -mnontrapping-fptoint")
