// src/runtime/run_alone.cc: runs parts one after another; the first exception is thrown after the last part.
#include "runtime/run_alone.h"

#include "runtime/between_parts.h"
#include "runtime/floating_point.h"

#include <exception>
#include <optional>
#include <utility>

namespace attn::runtime {
namespace {

constinit thread_local bool inside = false;

}  // namespace

InsidePart::InsidePart() : before_(std::exchange(inside, true)) {}
InsidePart::~InsidePart() { inside = before_; }

bool inside_part() { return inside; }

void run_alone(PartFunction part, void* context, std::int64_t parts) {
  std::exception_ptr error;
  {
    DefaultFloatingPoint floating_point;
    // A single part does not divide the work, so calls inside it may still use several threads.
    std::optional<InsidePart> mark;
    if (parts > 1) mark.emplace();
    for (std::int64_t index = 0; index < parts; ++index) {
      if (index > 0) floating_point.enforce();
      try {
        part(context, index);
      } catch (...) {
        if (!error) error = std::current_exception();
      }
      between_parts();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace attn::runtime
