// web/engine/std/cxxabi.h: <cxxabi.h> with the function that registers what a thread does at its end.
#pragma once
#pragma GCC system_header
#include_next <cxxabi.h>

namespace __cxxabiv1 {

extern "C" int __cxa_thread_atexit(void (*destroy)(void*), void* object, void* library) noexcept;

}  // namespace __cxxabiv1
