// src/ranks/failure.h: keeps the error of one rank until all ranks agree on it.
#pragma once
#include <exception>

namespace attn {

/// Calls `work`; keeps its exception for the next agreement of the ranks, until which this rank takes part.
template <typename Work>
std::exception_ptr failure_of(const Work& work) {
  try {
    work();
  } catch (...) { return std::current_exception(); }
  return nullptr;
}

}  // namespace attn
