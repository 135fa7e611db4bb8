// python/src/runtime.cc: binds the functions for threads and machine information, and turns notices of the library into
// Python warnings.
#include <attn/memory.h>
#include <attn/runtime.h>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "errors.h"
#include "gil.h"
#include "scalars.h"
#include "terms.h"

#include <cstdio>
#include <cstdlib>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace attn::python {
namespace {

nb::dict info_of() {
  const Info about = info();
  nb::dict all;
  all["version"] = about.version;
  all["numerics_version"] = about.numerics_version;
  all["cpu"] = about.cpu;
  all["features"] = about.features;
  all["targets"] = about.targets;
  all["target"] = about.target;
  all["cores"] = about.cores;
  all["threads"] = about.threads;
  all["compiler"] = about.compiler;
  return all;
}

/// Handles the library's messages: prints traces to stderr, as without Python, and turns notices into warnings. A
/// handler must not throw. If warnings are errors, Python's hook for unraisable errors shows the warning.
void tell(MessageKind kind, std::string_view line) {
  if (kind == MessageKind::trace) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
    return;
  }
  if (!Py_IsInitialized()) return;
  const Locked locked;
  if (PyErr_WarnEx(PyExc_RuntimeWarning, std::string(line).c_str(), 2) != 0) PyErr_WriteUnraisable(nullptr);
}

void keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int most = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, most);
  mallopt(M_TRIM_THRESHOLD, most);
#endif
}

}  // namespace

void add_runtime(nb::module_& m) {
  set_message_handler(tell);
  m.attr("numerics_version") = numerics_version;
  m.def("version", &version, "Of the library.");
  m.def("info", info_of, "Version, processor, kernels, threads, as a dict.");
  m.def("num_threads", &num_threads,
        "Threads that take part in a call, the caller included. Default: ATTN_NUM_THREADS, else the cores.");
  m.def(
      "set_num_threads",
      [](nb::handle threads) {
        constexpr Argument argument{"set_num_threads", "threads"};
        const std::int64_t count = whole(threads, argument);
        if (count < 1 || count > 1024)
          throw ValueError(text("set_num_threads: threads is {}; it must be from 1 to 1024", count));
        set_num_threads(static_cast<int>(count));
      },
      nb::arg("threads").none(), "1 to 1024. No result depends on it.");
  m.def("keep_freed_memory", keep_freed_memory,
        "Freed memory stays with the process, NumPy's and torch's too, where glibc would give large blocks back to the "
        "system and take them again page by\n"
        "page: up to a third of the time of a model whose tensors are of some megabytes. For the whole process, until "
        "it ends; elsewhere than glibc nothing.");
  m.def(
      "release_free_memory",
      [] {
        const Unlocked unlocked;
        return release_free_memory();
      },
      "Gives the memory of freed arrays that the library keeps for the next of their size (at most 1 GiB) back to the "
      "system, with glibc also what its\n"
      "heap holds free, NumPy's and torch's too. Returns the bytes of those the library kept. What is in use stays.");
  m.def(
      "set_trace", [](nb::handle on) { set_trace(flag(on, {"set_trace", "on"})); }, nb::arg("on").none(),
      "One line a call on stderr: shapes, the kernel, the reason. Off unless ATTN_TRACE is 1.");
}

}  // namespace attn::python
